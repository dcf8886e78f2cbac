"""JAX: one jitted `lax.scan` makes all updates of an epoch, with `jax.grad` and dropout that scales while training."""

import os

import jax
import jax.numpy as jnp


def threads():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def prepare(work):
    """A function that makes `work.updates` updates and returns the last loss."""
    jax.config.update("jax_platforms", work.device)
    inputs, targets = jnp.asarray(work.inputs), jnp.asarray(work.targets, jnp.int32)
    unit = jax.nn.relu if work.units == "rectified" else jax.nn.sigmoid
    rates = [work.visible] + [work.hidden] * (len(work.biases) - 1)
    # Dropout that scales while training starts from the mean network's weights.
    parameters = [(jnp.asarray(w.T), jnp.asarray(b)) for w, b in zip(work.mean_weights, work.biases, strict=True)]
    velocities = jax.tree.map(jnp.zeros_like, parameters)

    def dropout(key, rate, activities):
        return jnp.where(jax.random.bernoulli(key, 1 - rate, activities.shape), activities / (1 - rate), 0)

    def loss_of(parameters, inputs, targets, key):
        passed = inputs
        for k, (weight, bias) in enumerate(parameters):
            passed = dropout(jax.random.fold_in(key, k), rates[k], passed) @ weight + bias
            if k < len(parameters) - 1:
                passed = unit(passed)
        return -jnp.take_along_axis(jax.nn.log_softmax(passed), targets[:, None], 1).mean()

    def bounded(weight):
        return weight * jnp.minimum(1, jnp.sqrt(work.limit / jnp.square(weight).sum(0)))

    def update(state, chosen):
        parameters, velocities, key = state
        key, own = jax.random.split(key)
        loss, gradients = jax.value_and_grad(loss_of)(parameters, inputs[chosen], targets[chosen], own)
        velocities = jax.tree.map(lambda v, g: work.momentum * v - work.step * g, velocities, gradients)
        parameters = jax.tree.map(jnp.add, parameters, velocities)
        *hidden, output = parameters
        return ([*((bounded(weight), bias) for weight, bias in hidden), output], velocities, key), loss

    def epoch(state):
        parameters, velocities, key = state
        key, own = jax.random.split(key)
        order = jax.random.permutation(own, len(inputs))[: work.updates * work.batch]
        state, losses = jax.lax.scan(update, (parameters, velocities, key), order.reshape(work.updates, work.batch))
        return state, losses[-1]

    epoch = jax.jit(epoch, donate_argnums=0)
    state = parameters, velocities, jax.random.key(0)

    def run():
        nonlocal state
        state, loss = epoch(state)
        jax.block_until_ready(state)
        return float(loss)

    return run
