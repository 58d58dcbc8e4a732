/* Two libraries whose functions have the same names, both seen by the whole program: each state is
   of its own library. Arguments: the libraries. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

typedef int create(const void *options, void **state);
typedef int run(void *state, int64_t n, const float *x, float *y);
typedef const char *version(void);

int main(int argc, char **argv) {
    void *libraries[2], *states[2];
    float x[3] = {1, 2, 3}, y[3];
    if (argc != 3) return 2;
    for (int k = 0; k < 2; k++) {
        libraries[k] = dlopen(argv[k + 1], RTLD_NOW | RTLD_GLOBAL);
        if (libraries[k] == NULL) return fprintf(stderr, "%s\n", dlerror()), 3;
    }
    for (int k = 0; k < 2; k++)
        if (((create *)dlsym(libraries[k], "model_create"))(NULL, &states[k])) return 4;
    for (int k = 0; k < 2; k++) {
        if (((run *)dlsym(libraries[k], "model_run"))(states[k], 3, x, y)) return 5;
        printf("%s: %g %g %g\n", ((version *)dlsym(libraries[k], "model_version"))(), y[0], y[1],
               y[2]);
    }
    for (int k = 0; k < 2; k++)
        ((void (*)(void *))dlsym(libraries[k], "model_destroy"))(states[k]);
    return 0;
}
