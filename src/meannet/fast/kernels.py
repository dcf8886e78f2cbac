"""Triton kernels for one update of a fleet of dense nets (A.1), the fast twin of nn/dense.py.

Masks are drawn eight units to a byte. Activities and slopes of omitted units are exact zeros. The gradient product of a
layer ends in the update itself: momentum, step and norm bound happen while the rows are at hand, and no gradient is
ever stored.
"""

import triton
import triton.language as tl


@triton.jit
def draw_masks(bits, thresholds, seeds, first_update, offset, layer, cases, blocks, BLOCK: tl.constexpr):
    """bits[net, case, block]: bit i says whether unit 8 * block + i is kept."""
    net = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < cases * blocks
    case, block = at // blocks, at % blocks
    zero = tl.zeros((BLOCK,), tl.int32)
    update = (tl.load(first_update) + offset).to(tl.int32)
    w0, w1, w2, w3 = tl.philox(tl.load(seeds + net), block, case, zero + layer, zero + update)
    rows = thresholds + (net * blocks + block) * 8
    byte = (
        _keep(rows, w0, 0, inside)
        | _keep(rows, w1, 2, inside)
        | _keep(rows, w2, 4, inside)
        | _keep(rows, w3, 6, inside)
    )
    tl.store(bits + net.to(tl.int64) * cases * blocks + at, byte.to(tl.uint8), mask=inside)


@triton.jit
def _keep(rows, word, at: tl.constexpr, inside):
    low = (word & 0xFFFF).to(tl.uint16).to(tl.int16, bitcast=True)
    high = (word >> 16).to(tl.uint16).to(tl.int16, bitcast=True)
    first = (low >= tl.load(rows + at, mask=inside, other=0)).to(tl.int32)
    second = (high >= tl.load(rows + at + 1, mask=inside, other=0)).to(tl.int32)
    return (first << at) | (second << (at + 1))


@triton.jit
def _kept(bits, row, unit, blocks, inside):
    byte = tl.load(bits + row * blocks + unit // 8, mask=inside, other=0).to(tl.int32)
    return ((byte >> (unit % 8)) & 1) == 1


@triton.jit
def gather(
    inputs,
    order,
    first_case,
    offset,
    bits,
    out,
    all_cases,
    cases,
    units: tl.constexpr,
    blocks,
    MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out[net, case] := the inputs of the case that is next in the net's own order, with omitted ones at zero."""
    case, net = tl.program_id(0), tl.program_id(1).to(tl.int64)
    chosen = tl.load(order + net * all_cases + tl.load(first_case) + offset * cases + case)
    row = net * cases + case
    for start in range(0, units, BLOCK):
        unit = start + tl.arange(0, BLOCK)
        inside = unit < units
        x = tl.load(inputs + chosen * units + unit, mask=inside, other=0.0)
        if MASKED:
            x = tl.where(_kept(bits, row, unit, blocks, inside), x, 0.0)
        tl.store(out + row * units + unit, x, mask=inside)


@triton.jit
def activate(
    total,
    slopes,
    bias,
    bits,
    active,
    cases,
    units: tl.constexpr,
    blocks,
    LOGISTIC: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """total[net, case] := the layer's masked activities, in place, and their slopes by the total inputs.

    Slopes are taken before rounding: a logistic unit at 0.999 rounds to 1 in bfloat16, and its slope would be lost.
    `active` is set for a net with any activity above zero.
    """
    case, net = tl.program_id(0), tl.program_id(1).to(tl.int64)
    row = net * cases + case
    for start in range(0, units, BLOCK):
        unit = start + tl.arange(0, BLOCK)
        inside = unit < units
        z = tl.load(total + row * units + unit, mask=inside, other=0.0).to(tl.float32)
        z += tl.load(bias + net * units + unit, mask=inside, other=0.0)
        if LOGISTIC:
            e = tl.exp(-tl.abs(z))
            a = tl.where(z > 0, 1.0, e) / (1 + e)
            slope = e / ((1 + e) * (1 + e))
        else:
            a = tl.maximum(z, 0.0)
            slope = (z > 0).to(tl.float32)
        kept = inside
        if MASKED:
            kept &= _kept(bits, row, unit, blocks, inside)
        a = tl.where(kept, a, 0.0)
        tl.store(total + row * units + unit, a.to(total.dtype.element_ty), mask=inside)
        tl.store(slopes + row * units + unit, tl.where(kept, slope, 0.0).to(slopes.dtype.element_ty), mask=inside)
        if tl.max(a, 0) > 0:
            tl.store(active + net, 1)


@triton.jit
def output_layer(
    below, weight, bias, targets, order, first_case, offset, delta, loss, wrong,
    all_cases, cases: tl.constexpr, units: tl.constexpr, outputs,
    PRECISION: tl.constexpr, CASES: tl.constexpr, OUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Softmax outputs, their loss and errors added per case, and the derivatives of the mean loss."""
    net = tl.program_id(1).to(tl.int64)
    case = tl.program_id(0) * CASES + tl.arange(0, CASES)
    out = tl.arange(0, OUT)
    total = tl.zeros((CASES, OUT), tl.float32)
    for start in range(0, units, BLOCK):
        unit = start + tl.arange(0, BLOCK)
        a = tl.load(
            below + (net * cases + case[:, None]) * units + unit[None, :],
            mask=(case[:, None] < cases) & (unit[None, :] < units),
            other=0.0,
        )
        w = tl.load(
            weight + (net * outputs + out[None, :]) * units + unit[:, None],
            mask=(out[None, :] < outputs) & (unit[:, None] < units),
            other=0.0,
        )
        total = tl.dot(a, w, total, input_precision=PRECISION)
    total += tl.load(bias + net * outputs + out, mask=out < outputs, other=0.0)[None, :]
    total = tl.where(out[None, :] < outputs, total, -float("inf"))
    largest = tl.max(total, 1)
    exponent = tl.exp(total - largest[:, None])
    total_exponent = tl.sum(exponent, 1)
    valid = case < cases
    chosen = tl.load(order + net * all_cases + tl.load(first_case) + offset * cases + case, mask=valid, other=0)
    target = tl.load(targets + chosen, mask=valid, other=0)
    right = out[None, :] == target[:, None]
    total_right = tl.sum(tl.where(right, total, 0.0), 1)
    kept = net * cases + case
    # The first of equal outputs is the answer, as in the plain version.
    answer = tl.min(tl.where(total == largest[:, None], out[None, :], OUT), 1)
    more = largest + tl.log(total_exponent) - total_right
    tl.store(loss + kept, tl.load(loss + kept, mask=valid, other=0.0) + more, mask=valid)
    tl.store(wrong + kept, tl.load(wrong + kept, mask=valid, other=0) + (answer != target).to(tl.int32), mask=valid)
    gradient = (exponent / total_exponent[:, None] - right.to(tl.float32)) / cases
    tl.store(
        delta + kept[:, None] * OUT + out[None, :],
        tl.where(out[None, :] < outputs, gradient, 0.0).to(delta.dtype.element_ty),
        mask=valid[:, None],
    )


@triton.jit
def through_output(
    delta, weight, slopes, out_delta, cases, units, outputs,
    PRECISION: tl.constexpr, CASES: tl.constexpr, OUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Derivatives of the last hidden layer from those of the output layer."""
    net = tl.program_id(2).to(tl.int64)
    case = tl.program_id(1) * CASES + tl.arange(0, CASES)
    unit = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    out = tl.arange(0, OUT)
    d = tl.load(delta + (net * cases + case[:, None]) * OUT + out[None, :], mask=case[:, None] < cases, other=0.0)
    w = tl.load(
        weight + (net * outputs + out[:, None]) * units + unit[None, :],
        mask=(out[:, None] < outputs) & (unit[None, :] < units),
        other=0.0,
    )
    back = tl.dot(d, w, input_precision=PRECISION)
    place = (net * cases + case[:, None]) * units + unit[None, :]
    inside = (case[:, None] < cases) & (unit[None, :] < units)
    slope = tl.load(slopes + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_delta + place, (back * slope).to(out_delta.dtype.element_ty), mask=inside)


@triton.jit
def times_slope(delta, slopes, count, BLOCK: tl.constexpr):
    """delta := delta times the slope of each unit, in place."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    slope = tl.load(slopes + at, mask=inside, other=0.0).to(tl.float32)
    d = tl.load(delta + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(delta + at, (d * slope).to(delta.dtype.element_ty), mask=inside)


@triton.jit
def _deltas(delta, net, unit, case, cases, units, width):
    """(units, cases): a block of a layer's derivatives, turned."""
    at = delta + (net * cases + case[None, :]) * width + unit[:, None]
    return tl.load(at, mask=(case[None, :] < cases) & (unit[:, None] < units), other=0.0)


@triton.jit
def gradient_step(
    delta, below, weight, velocity, shadow, bias, bias_velocity, steps, momentum_at, limits, moved,
    cases: tl.constexpr, units, inputs: tl.constexpr, delta_width, BOUND: tl.constexpr, PRECISION: tl.constexpr,
    UNITS: tl.constexpr, CASES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradient product, momentum, step and norm bound of a block of whole rows.

    `shadow` is the weights' rounded copy, which the products read.
    """
    net = tl.program_id(1).to(tl.int64)
    unit = tl.program_id(0) * UNITS + tl.arange(0, UNITS)
    step, momentum = tl.load(steps + net), tl.load(momentum_at)
    squared = tl.zeros((UNITS,), tl.float32)
    any_gradient = tl.zeros((UNITS,), tl.float32)
    case = tl.arange(0, CASES)
    d = _deltas(delta, net, unit, case, cases, units, delta_width)
    bias_gradient = tl.sum(d.to(tl.float32), 1)
    for first in range(CASES, cases, CASES):
        bias_gradient += tl.sum(_deltas(delta, net, unit, first + case, cases, units, delta_width).to(tl.float32), 1)
    for start in range(0, inputs, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = (unit[:, None] < units) & (column[None, :] < inputs)
        place = (net * units + unit[:, None]) * inputs + column[None, :]
        v = tl.load(velocity + place, mask=inside, other=0.0)
        w = tl.load(weight + place, mask=inside, other=0.0)
        gradient = tl.zeros((UNITS, BLOCK), tl.float32)
        for first in range(0, cases, CASES):
            if cases > CASES:
                d = _deltas(delta, net, unit, first + case, cases, units, delta_width)
            a = tl.load(
                below + (net * cases + first + case[:, None]) * inputs + column[None, :],
                mask=(first + case[:, None] < cases) & (column[None, :] < inputs),
                other=0.0,
            )
            gradient = tl.dot(d, a, gradient, input_precision=PRECISION)
        v = momentum * v - step * gradient
        w += v
        tl.store(velocity + place, v, mask=inside)
        tl.store(weight + place, w, mask=inside)
        tl.store(shadow + place, w.to(shadow.dtype.element_ty), mask=inside)
        if BOUND:
            squared += tl.sum(w * w, 1)
            any_gradient = tl.maximum(any_gradient, tl.max(tl.abs(gradient), 1))
    real = unit < units
    v = momentum * tl.load(bias_velocity + net * units + unit, mask=real, other=0.0) - step * bias_gradient
    tl.store(bias_velocity + net * units + unit, v, mask=real)
    tl.store(bias + net * units + unit, tl.load(bias + net * units + unit, mask=real, other=0.0) + v, mask=real)
    if BOUND:
        if tl.max(any_gradient, 0) > 0:
            tl.store(moved + net, 1)
        limit = tl.load(limits + net)
        over = (squared > limit) & (squared < float("inf"))
        if tl.max(over.to(tl.int32), 0) > 0:
            scale = tl.where(over, tl.sqrt(limit / squared), 1.0)
            tl.debug_barrier()  # the rows just stored are read again, perhaps by other threads
            for start in range(0, inputs, BLOCK):
                column = start + tl.arange(0, BLOCK)
                inside = (unit[:, None] < units) & (column[None, :] < inputs)
                place = (net * units + unit[:, None]) * inputs + column[None, :]
                w = tl.load(weight + place, mask=inside, other=0.0) * scale[:, None]
                tl.store(weight + place, w, mask=inside)
                tl.store(shadow + place, w.to(shadow.dtype.element_ty), mask=inside)
