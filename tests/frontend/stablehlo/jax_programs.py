"""Functions and models in JAX and flax, which XLA and Strata both compile.

Each function returns the program and its arguments. `s` scales batches and widths: 1 for tests,
more for times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

PROGRAMS: dict[str, Callable[[int], tuple[Any, tuple[Any, ...]]]] = {}
OPEN = ("open_sizes",)


def program(function: Any) -> Any:
    PROGRAMS[function.__name__] = function
    return function


def drawn(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def whole(high: int, *shape: int) -> Any:
    return np.random.default_rng(1).integers(0, high, shape).astype(np.int32)


def applied(module: Any, *inputs: Any) -> tuple[Any, tuple[Any, ...]]:
    """A flax module with weights, as a function of weights and inputs. Weights are drawn by NumPy.
    """
    import jax

    shapes = jax.eval_shape(module.init, jax.random.PRNGKey(0), *inputs)
    leaves, tree = jax.tree.flatten(shapes)
    values = [np.abs(drawn(*v.shape, seed=k)) * 0.1 if len(v.shape) == 1 else
              drawn(*v.shape, seed=k) / np.sqrt(np.prod(v.shape[:-1])).astype(np.float32)
              for k, v in enumerate(leaves)]
    return module.apply, (jax.tree.unflatten(tree, values), *inputs)


# ---------------------------------------------------------------------- models
@program
def mlp(s: int) -> Any:
    from flax import linen as nn

    net = nn.Sequential([nn.Dense(64 * s), nn.gelu, nn.Dense(64 * s), nn.gelu, nn.Dense(10)])
    return applied(net, drawn(16 * s, 64))


@program
def convolutions(s: int) -> Any:
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.relu(nn.Conv(8 * s, (3, 3))(x))
            x = nn.avg_pool(x, (2, 2), (2, 2))
            x = nn.Conv(16 * s, (3, 3), strides=2, feature_group_count=2)(x)
            x = nn.relu(nn.BatchNorm(use_running_average=True)(x))
            x = nn.max_pool(x, (2, 2), (2, 2))
            return nn.Dense(10)(x.reshape(x.shape[0], -1))

    return applied(Net(), drawn(2, 32, 32, 3))


@program
def resnet(s: int) -> Any:
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.relu(nn.GroupNorm(4)(nn.Conv(16 * s, (7, 7), (2, 2), use_bias=False)(x)))
            x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
            for width, stride in ((16 * s, 1), (32 * s, 2)):
                y = nn.Conv(width, (3, 3), (stride, stride), use_bias=False)(x)
                y = nn.relu(nn.BatchNorm(use_running_average=True)(y))
                y = nn.Conv(width, (3, 3), use_bias=False)(y)
                y = nn.BatchNorm(use_running_average=True)(y)
                x = nn.relu(y + nn.Conv(width, (1, 1), (stride, stride))(x))
            return nn.Dense(10)(x.mean((1, 2)))

    return applied(Net(), drawn(1, 16 * s, 16 * s, 3))


def block(nn: Any, x: Any, heads: int, mask: Any = None) -> Any:
    """A layer of a transformer, inside a compact module."""
    y = nn.LayerNorm()(x)
    x = x + nn.MultiHeadDotProductAttention(heads)(y, y, mask=mask)
    y = nn.Dense(4 * x.shape[-1])(nn.LayerNorm()(x))
    return x + nn.Dense(x.shape[-1])(nn.gelu(y))


@program
def transformer(s: int) -> Any:
    import jax.numpy as jnp
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            width = 32 * s
            place = self.param("place", nn.initializers.normal(0.02), (tokens.shape[1], width))
            x = nn.Embed(100 * s, width)(tokens) + place
            mask = nn.make_causal_mask(jnp.ones(tokens.shape))
            for _ in range(2):
                x = block(nn, x, 4, mask)
            return nn.Dense(100 * s)(nn.LayerNorm()(x))

    return applied(Net(), whole(100, 2, 16 * s))


@program
def vit(s: int) -> Any:
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.Conv(32 * s, (8, 8), strides=8)(x)
            x = x.reshape(x.shape[0], -1, 32 * s)
            for _ in range(2):
                x = block(nn, x, 4)
            return nn.Dense(10)(x.mean(1))

    return applied(Net(), drawn(2, 16 * s, 16 * s, 3))


@program
def lstm(s: int) -> Any:
    from flax import linen as nn

    return applied(nn.RNN(nn.LSTMCell(16 * s)), drawn(2, 10 * s, 8 * s))


@program
def gru(s: int) -> Any:
    from flax import linen as nn

    return applied(nn.RNN(nn.GRUCell(16 * s)), drawn(2, 10 * s, 8 * s))


@program
def unet(s: int) -> Any:
    import jax.numpy as jnp
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            a = nn.silu(nn.Conv(8 * s, (3, 3))(x))
            b = nn.silu(nn.Conv(16 * s, (3, 3), strides=2)(a))
            c = nn.ConvTranspose(8 * s, (2, 2), strides=(2, 2))(b)
            return nn.Conv(3, (1, 1))(jnp.concatenate([a, c], -1))

    return applied(Net(), drawn(1, 8 * s, 8 * s, 3))


# ---------------------------------------------------------------------- training
@program
def training(s: int) -> Any:
    """A loss, its gradients, and the weights after a step of momentum."""
    import jax
    import jax.numpy as jnp

    def step(weights: Any, moments: Any, x: Any, y: Any) -> Any:
        def loss(w: Any) -> Any:
            return jnp.mean((jnp.tanh(x @ w["a"]) @ w["b"] - y) ** 2)

        value, grads = jax.value_and_grad(loss)(weights)
        moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, grads)
        return value, jax.tree.map(lambda w, m: w - 0.1 * m, weights, moments), moments

    weights = {"a": drawn(20 * s, 30 * s), "b": drawn(30 * s, 4)}
    moments = {name: np.zeros_like(w) for name, w in weights.items()}
    return step, (weights, moments, drawn(16 * s, 20 * s), drawn(16 * s, 4))


@program
def step(s: int) -> Any:
    """A step of a convolutional net with cross entropy: gradients of pools and convolutions."""
    import jax
    import jax.numpy as jnp
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.relu(nn.Conv(8 * s, (3, 3), strides=2)(x))
            x = nn.max_pool(x, (2, 2), (2, 2))
            return nn.Dense(10)(x.reshape(x.shape[0], -1))

    apply, (weights, x) = applied(Net(), drawn(4, 8 * s, 8 * s, 3))

    def one(weights: Any, x: Any, y: Any) -> Any:
        def loss(w: Any) -> Any:
            scores = jax.nn.log_softmax(apply(w, x))
            return -jnp.take_along_axis(scores, y[:, None], 1).mean()

        value, grads = jax.value_and_grad(loss)(weights)
        return value, jax.tree.map(lambda w, g: w - 0.1 * g, weights, grads)

    return one, (weights, x, whole(10, 4))


# ---------------------------------------------------------------------- control flow and indices
@program
def newton(s: int) -> Any:
    """A loop that ends where a run finds that it may."""
    import jax
    import jax.numpy as jnp

    def roots(x: Any) -> Any:
        def goes_on(state: Any) -> Any:
            return (jnp.abs(state[0] ** 2 - x).max() > 1e-4) & (state[1] < 50)

        return jax.lax.while_loop(goes_on, lambda v: (0.5 * (v[0] + x / v[0]), v[1] + 1),
                                  (jnp.ones_like(x), 0))

    return roots, (np.abs(drawn(1000 * s * s)) + 1,)


@program
def branches(s: int) -> Any:
    import jax
    import jax.numpy as jnp

    def chosen(i: Any, x: Any) -> Any:
        ways = [jnp.sin, lambda v: v * 2, jnp.cumsum]
        return jax.lax.switch(i, ways, x), jax.lax.cond(
            x.sum() > 0, lambda v: v + 1, lambda v: v - 1, x)

    return chosen, (np.int32(2), drawn(50 * s * s))


@program
def kmeans(s: int) -> Any:
    import jax
    import jax.numpy as jnp

    def found(x: Any, centers: Any) -> Any:
        def turn(c: Any, _: Any) -> Any:
            apart = ((x[:, None] - c[None]) ** 2).sum(-1)
            nearest = apart.argmin(1)
            total = jax.ops.segment_sum(x, nearest, 8)
            count = jax.ops.segment_sum(jnp.ones(x.shape[0]), nearest, 8)[:, None]
            return jnp.where(count > 0, total / jnp.maximum(count, 1), c), apart.min(1).sum()

        return jax.lax.scan(turn, centers, None, length=5)

    x = drawn(100 * s * s, 3)
    return found, (x, x[:8])


@program
def decoding(s: int) -> Any:
    """The likeliest token after each of those so far."""
    import jax
    import jax.numpy as jnp

    def tokens(w: Any, u: Any, given: Any) -> Any:
        def body(i: Any, t: Any) -> Any:
            state = jnp.tanh(w[t].cumsum(0)[i - 1])
            return t.at[i].set(jnp.argmax(state @ u).astype(jnp.int32))

        return jax.lax.fori_loop(1, given.shape[0], body, given)

    return tokens, (drawn(50 * s, 16 * s), drawn(16 * s, 50 * s), np.zeros(12, np.int32))


@program
def orders(s: int) -> Any:
    import jax
    import jax.numpy as jnp

    def ordered(x: Any) -> Any:
        return (jnp.sort(x, -1), jnp.argsort(x, -1), jax.lax.top_k(x, 5), jnp.median(x, -1),
                jnp.quantile(x, 0.3, axis=-1), jnp.cumsum(x, 1), jnp.cumprod(x, 0),
                jnp.searchsorted(jnp.sort(x[0]), x[1]))

    return ordered, (drawn(8 * s, 33 * s),)


@program
def indexing(s: int) -> Any:
    import jax
    import jax.numpy as jnp

    def moved(x: Any, i: Any) -> Any:
        return (x[i], x.at[i].add(1.0), x.at[:, ::2].set(0.0), jnp.roll(x, 3, 1), jnp.flip(x, 0),
                jax.lax.dynamic_slice(x, (i[0], 1), (3, 4)),
                jax.lax.dynamic_update_slice(x, x[:2, :2], (i[1], i[2])))

    return moved, (drawn(10 * s, 12 * s), np.array([1, 7, -1, 3], np.int32))


@program
def randomness(s: int) -> Any:
    """JAX's own random numbers, which are integers' arithmetic."""
    import jax

    def numbers(key: Any) -> Any:
        return (jax.random.normal(key, (16 * s,)), jax.random.randint(key, (10 * s,), 0, 100),
                jax.random.bernoulli(key, 0.3, (8 * s,)))

    return numbers, (np.array([7, 42], np.uint32),)


@program
def formats(s: int) -> Any:
    """Bits as elements of other widths, narrow elements, and keys, which are divided among devices.
    """
    import jax
    import jax.numpy as jnp

    def converted(x: Any, w: Any, key: Any) -> Any:
        bits, made = jax.lax.bitcast_convert_type, jax.random.wrap_key_data(key)
        octets = bits(x, jnp.uint8)
        return (octets, bits(octets, jnp.float32), bits(x, jnp.int16), bits(x, jnp.int32),
                jax.lax.reduce_precision(x, 5, 10), jax.random.key_data(jax.random.split(made, 3)),
                x.astype(jnp.float8_e4m3fn).astype(x.dtype) @ w.astype(jnp.float8_e5m2).astype(
                    w.dtype), (x * 3).astype(jnp.int4).astype(jnp.int32))

    return converted, (drawn(4 * s, 5), drawn(5, 3 * s, seed=1), np.array([7, 42], np.uint32))


@program
def systems(s: int) -> Any:
    """Factors of matrices and linear systems, which call LAPACK on the CPU."""
    import jax
    import jax.numpy as jnp

    def solved(a: Any) -> Any:
        spread = a @ a.swapaxes(-1, -2) + jnp.eye(a.shape[-1])
        low = jnp.linalg.cholesky(spread)
        upper = jax.scipy.linalg.cholesky(spread[0], lower=False)
        right = jax.scipy.linalg.solve_triangular(low, a, trans=1, lower=True)
        return (low, upper, right, *jax.lax.linalg.lu(a), jnp.linalg.solve(spread, a[..., :3]),
                jnp.linalg.inv(spread), jnp.linalg.slogdet(a))

    return solved, (drawn(3 * s, 7, 7),)


@program
def factors(s: int) -> Any:
    """Factors with orthogonal columns, the signs of whose vectors are any: of tall and wide
    matrices, whole and not, of those with equal singular values, and of symmetric ones."""
    import jax.numpy as jnp

    def factored(a: Any) -> Any:
        wide = a.swapaxes(-1, -2)
        q, r = jnp.linalg.qr(a)
        whole, upper = jnp.linalg.qr(wide, mode="complete")
        u, values, v = jnp.linalg.svd(wide, full_matrices=False)
        left, _, right = jnp.linalg.svd(a, full_matrices=True)
        every, vectors = jnp.linalg.eigh(a @ wide)
        return (q, r, whole @ upper, (u * values[:, None]) @ v, values, left @ left.mT,
                right @ right.mT, abs(u), every, (vectors * every[:, None]) @ vectors.mT,
                jnp.linalg.eigvalsh(jnp.zeros((3, 3))), jnp.linalg.svdvals(q), jnp.linalg.pinv(a),
                jnp.linalg.cond(a), jnp.linalg.matrix_rank(a),
                jnp.linalg.lstsq(a[0], a[0, :, 0])[0])

    return factored, (drawn(2 * s, 5, 3),)


@program
def open_sizes(s: int) -> Any:
    """Attention over any number of rows."""
    import jax

    return (lambda x: jax.nn.softmax(x @ x.T) @ x), (drawn(6 * s, 8 * s),)
