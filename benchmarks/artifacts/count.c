/* A plugin of QEMU (2 of its interface, 7.2): counts the instructions of a program with one thread.

   cc -shared -fPIC -o count.so count.c; QEMU_PLUGIN=file=./count.so qemu-aarch64 program

   Prints "instructions: N", the number so far, whenever the program asks for the priority of the user
   4242, as Python does by os.getpriority(os.PRIO_USER, 4242). The declarations are those of
   qemu-plugin.h, which distributions do not ship. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
void qemu_plugin_register_vcpu_tb_trans_cb(
    qemu_plugin_id_t id, void (*call)(qemu_plugin_id_t, struct qemu_plugin_tb *));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
void qemu_plugin_register_vcpu_tb_exec_inline(
    struct qemu_plugin_tb *block, int operation, void *place, uint64_t value);
typedef void on_syscall(
    qemu_plugin_id_t id, unsigned processor, int64_t number, uint64_t, uint64_t, uint64_t, uint64_t,
    uint64_t, uint64_t, uint64_t, uint64_t);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t id, on_syscall *call);

int qemu_plugin_version = 1;
static uint64_t count;

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(block, 0, &count, qemu_plugin_tb_n_insns(block));
}

static void asked(
    qemu_plugin_id_t id, unsigned processor, int64_t number, uint64_t kind, uint64_t user, uint64_t c,
    uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
    (void)id, (void)processor, (void)number, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    if (kind == 2 && user == 4242)
        fprintf(stderr, "instructions: %llu\n", (unsigned long long)count);
}

int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv) {
    (void)info, (void)argc, (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_vcpu_syscall_cb(id, asked);
    return 0;
}
