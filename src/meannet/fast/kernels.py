"""Triton kernels for one update of a fleet of dense nets (A.1), the fast twin of nn/dense.py, and for pretraining.

Masks are drawn where they are used. Activities and slopes of omitted units are exact zeros. The gradient product of a
layer ends in the update itself: momentum and step happen while a tile of the weights is at hand, and no gradient is
ever stored.

The norm bound needs whole rows, and a tile has only a part of each. So `gradient_step` leaves the squared length of
each row's part in `squares`, and the weights are the stored ones times a scale per row, which follows from the squares.
`forward_layer` works the scales out; the next step multiplies them into the weights. Between two epochs scales are one.

Within an epoch weights and velocities lie in blocks of SIDE by SIDE, one after the other along the inputs, then along
the units: what a block of threads takes on is then one stretch of memory, or a few.
"""

import triton
import triton.language as tl

SIDE = tl.constexpr(64)


@triton.jit
def _weights(units, inputs):
    """How far apart the weights of two nets are."""
    return tl.cdiv(units, SIDE) * tl.cdiv(inputs, SIDE) * (SIDE * SIDE)


@triton.jit
def _weight_at(unit, column, inputs):
    """Where the weight of a unit for an input is."""
    block = unit // SIDE * tl.cdiv(inputs, SIDE) + column // SIDE
    return block * (SIDE * SIDE) + unit % SIDE * SIDE + column % SIDE


@triton.jit
def _draws(seed, update, place, case, first, CASES: tl.constexpr, UNITS: tl.constexpr):
    """(CASES, UNITS): draws over all of int16 of the units from `first` on, a multiple of 8, for each case."""
    shape: tl.constexpr = (CASES, UNITS // 8)
    block = tl.broadcast_to((first // 8 + tl.arange(0, UNITS // 8))[None, :], shape)
    row = tl.broadcast_to(case[:, None], shape)
    zero = tl.zeros(shape, tl.int32)
    w0, w1, w2, w3 = tl.philox(seed, block, row, zero + place, zero + update)
    words = tl.join(tl.join(w0, w2), tl.join(w1, w3)).reshape(CASES, UNITS // 2)
    return tl.join(words & 0xFFFF, words >> 16).reshape(CASES, UNITS).to(tl.uint16).to(tl.int16, bitcast=True)


@triton.jit
def _kept(thresholds, seed, update, layer, case, first, CASES: tl.constexpr, UNITS: tl.constexpr):
    """(CASES, UNITS): which of the units from `first` on, a multiple of 8, are kept for each case."""
    return _draws(seed, update, layer, case, first, CASES, UNITS) >= thresholds[None, :]


@triton.jit(do_not_specialize=["place"])
def logistic_layer(
    given, given_net, given_case, weight, weight_net, weight_input, weight_unit, bias, bias_net, bias_case,
    out, out_net, out_case, factor, seeds, update, place, cases, units: tl.constexpr, inputs: tl.constexpr,
    SAMPLED: tl.constexpr, CASES: tl.constexpr, UNITS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out := the probability that each unit is on, or with SAMPLED its state, 1 or 0 (fast/units.py).

    The probability is the logistic function of factor * (given weight + bias). What follows a tensor's name is how far
    apart its nets, cases, inputs or units are; along the axis that is not named neighbours are adjacent.
    """
    net = tl.program_id(2).to(tl.int64)
    case = tl.program_id(1) * CASES + tl.arange(0, CASES)
    first = tl.program_id(0) * UNITS
    unit = first + tl.arange(0, UNITS)
    column = tl.arange(0, BLOCK)
    real, there = unit < units, case < cases
    a_at = given + net * given_net + case[:, None] * given_case + column[None, :]
    w_at = weight + net * weight_net + unit[None, :] * weight_unit + column[:, None] * weight_input
    total = tl.zeros((CASES, UNITS), tl.float32)
    for start in range(0, inputs, BLOCK):
        left = column < inputs - start
        a = tl.load(a_at, mask=there[:, None] & left[None, :], other=0.0)
        w = tl.load(w_at, mask=real[None, :] & left[:, None], other=0.0)
        total = tl.dot(a, w, total, input_precision="tf32")
        a_at += BLOCK
        w_at += BLOCK * weight_input
    inside = there[:, None] & real[None, :]
    b_at = bias + net * bias_net + case[:, None] * bias_case + unit[None, :]
    z = factor * (total + tl.load(b_at, mask=inside, other=0.0))
    e = tl.exp(-tl.abs(z))
    found = tl.where(z > 0, 1.0, e) / (1 + e)
    if SAMPLED:
        number = tl.load(update).to(tl.int32)
        draws = _draws(tl.load(seeds + net), number, place, case, first, CASES, UNITS)
        found = (draws.to(tl.float32) < found * 65536.0 - 32768.5).to(tl.float32)
    tl.store(out + net * out_net + case[:, None] * out_case + unit[None, :], found, mask=inside)


@triton.jit(do_not_specialize=["place"])
def turn_on(
    probabilities, states, seeds, update, place, cases, units: tl.constexpr, blocks, BLOCK: tl.constexpr
):  # fmt: skip
    """states[net, case, unit] := 1 where the unit's draw is below its probability, else 0 (pretrain/draws.py)."""
    net = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < cases * blocks
    case, block = at // blocks, at % blocks
    zero = tl.zeros((BLOCK,), tl.int32)
    number = tl.load(update).to(tl.int32)
    w0, w1, w2, w3 = tl.philox(tl.load(seeds + net), block, case, zero + place, zero + number)
    first = (net * cases + case) * units
    for pair in tl.static_range(4):
        word = w0 if pair == 0 else w1 if pair == 1 else w2 if pair == 2 else w3
        for half in tl.static_range(2):
            unit = block * 8 + 2 * pair + half
            draw = ((word >> (16 * half)) & 0xFFFF).to(tl.uint16).to(tl.int16, bitcast=True).to(tl.float32)
            there = inside & (unit < units)
            p = tl.load(probabilities + first + unit, mask=there, other=0.0)
            tl.store(states + first + unit, (draw < p * 65536.0 - 32768.5).to(tl.float32), mask=there)


@triton.jit(do_not_specialize=["place"])
def draw(draws, seeds, update, place, cases, BLOCK: tl.constexpr):
    """draws[net, case] := the first draw of the case, over all of int16 (pretrain/draws.py)."""
    net = tl.program_id(1).to(tl.int64)
    case = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    zero = tl.zeros((BLOCK,), tl.int32)
    number = tl.load(update).to(tl.int32)
    word, _, _, _ = tl.philox(tl.load(seeds + net), zero, case, zero + place, zero + number)
    tl.store(draws + net * cases + case, (word & 0xFFFF).to(tl.uint16).to(tl.int16, bitcast=True), mask=case < cases)


@triton.jit(do_not_specialize=["offset", "layer"])
def gather(
    inputs, which, order, first_case, thresholds, seeds, first_update, offset, layer, out,
    starts, row: tl.constexpr, all_cases, cases, units: tl.constexpr, padded,
    MASKED: tl.constexpr, CUT: tl.constexpr, CASES: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """out[net, case] := the inputs of the case that is next in the net's own order, with omitted ones at zero.

    A case is a row of `inputs`, `row` apart from the next; with CUT it begins at one of `starts` and goes over several.
    """
    net = tl.program_id(2).to(tl.int64)
    case = tl.program_id(1) * CASES + tl.arange(0, CASES)
    first = tl.program_id(0) * UNITS
    unit = first + tl.arange(0, UNITS)
    chosen = tl.load(order + net * all_cases + tl.load(first_case) + offset * cases + case, mask=case < cases, other=0)
    inside = (case[:, None] < cases) & (unit[None, :] < units)
    place = tl.load(which + net) * all_cases + chosen
    if CUT:
        place = tl.load(starts + place)
    x = tl.load(inputs + place[:, None] * row + unit[None, :], mask=inside, other=0.0)
    if MASKED:
        update = (tl.load(first_update) + offset).to(tl.int32)
        at_least = tl.load(thresholds + net * padded + unit, mask=unit < padded, other=0)
        keep = _kept(at_least, tl.load(seeds + net), update, layer, case, first, CASES, UNITS)
        x = tl.where(keep, x, 0.0)
    tl.store(out + (net * cases + case[:, None]) * units + unit[None, :], x, mask=inside)


@triton.jit(do_not_specialize=["offset", "layer"])
def forward_layer(
    below, weight, squares, limits, scales, bias, thresholds, seeds, first_update, offset, layer,
    above, slopes, active, cases, units: tl.constexpr, inputs: tl.constexpr, padded, parts: tl.constexpr, layers,
    LOGISTIC: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
    CASES: tl.constexpr, UNITS: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The masked activities of a layer and their slopes by the total inputs.

    Slopes are taken before rounding: a logistic unit at 0.999 rounds to 1 in bfloat16, and its slope would be lost.
    `active` is set for a net of rectified units with any activity above zero.
    """
    net = tl.program_id(2).to(tl.int64)
    case = tl.program_id(1) * CASES + tl.arange(0, CASES)
    first = tl.program_id(0) * UNITS
    unit = first + tl.arange(0, UNITS)
    column = tl.arange(0, BLOCK)
    real = unit < units
    # What follows the product is asked for before it, so that it need not be waited for.
    part = tl.arange(0, PARTS)
    s_at = squares + (net * parts + part[:, None]) * units + unit[None, :]
    squared = tl.load(s_at, mask=(part[:, None] < parts) & real[None, :], other=0.0)
    for start in range(PARTS, parts, PARTS):
        there = (start + part[:, None] < parts) & real[None, :]
        squared += tl.load(s_at + start * units, mask=there, other=0.0)
    limit = tl.load(limits + net)
    b = tl.load(bias + net * units + unit, mask=real, other=0.0)
    update, seed, at_least = 0, 0, 0  # or not read
    if MASKED:
        update, seed = (tl.load(first_update) + offset).to(tl.int32), tl.load(seeds + net)
        at_least = tl.load(thresholds + net * padded + unit, mask=unit < padded, other=0)
    a_at = below + (net * cases + case[:, None]) * inputs + column[None, :]
    w_at = weight + net * _weights(units, inputs) + _weight_at(unit[None, :], column[:, None], inputs)
    total = tl.zeros((CASES, UNITS), tl.float32)
    for start in range(0, inputs, BLOCK):
        left = column < inputs - start
        a = tl.load(a_at, mask=(case[:, None] < cases) & left[None, :], other=0.0)
        w = tl.load(w_at, mask=real[None, :] & left[:, None], other=0.0)
        total = tl.dot(a, w, total, input_precision=PRECISION)
        a_at += BLOCK
        w_at += BLOCK * SIDE
    squared = tl.sum(squared, 0)
    # A row whose squared length overflows is left alone: its net has diverged and is to be seen to.
    over = (squared > limit) & (squared < float("inf"))
    scale = tl.where(over, tl.sqrt(limit / squared), 1.0)
    tl.store(scales + net * units + unit, scale, mask=real)
    z = total * scale[None, :] + b[None, :]
    if LOGISTIC:
        e = tl.exp(-tl.abs(z))
        inverse = 1 / (1 + e)
        a = tl.where(z > 0, 1.0, e) * inverse
        slope = e * inverse * inverse
    else:
        a = tl.maximum(z, 0.0)
        slope = (z > 0).to(tl.float32)
    inside = (case[:, None] < cases) & real[None, :]
    if MASKED:
        keep = _kept(at_least, seed, update, layer, case, first, CASES, UNITS)
        a, slope = tl.where(keep, a, 0.0), tl.where(keep, slope, 0.0)
    place = (net * cases + case[:, None]) * units + unit[None, :]
    tl.store(above + place, a.to(above.dtype.element_ty), mask=inside)
    tl.store(slopes + place, slope.to(slopes.dtype.element_ty), mask=inside)
    if not LOGISTIC and tl.max(tl.where(inside, a, 0.0)) > 0:
        tl.store(active + net * layers, 1)


@triton.jit(do_not_specialize=["offset"])
def output_layer(
    below, weight, bias, targets, order, first_case, offset, delta, loss, wrong,
    all_cases, cases: tl.constexpr, units: tl.constexpr, outputs,
    PRECISION: tl.constexpr, CASES: tl.constexpr, OUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Softmax outputs, their loss and errors added per case, and the derivatives of the mean loss."""
    net = tl.program_id(1).to(tl.int64)
    case = tl.program_id(0) * CASES + tl.arange(0, CASES)
    out = tl.arange(0, OUT)
    unit = tl.arange(0, BLOCK)
    valid = case < cases
    chosen = tl.load(order + net * all_cases + tl.load(first_case) + offset * cases + case, mask=valid, other=0)
    target = tl.load(targets + chosen, mask=valid, other=0)
    a_at = below + (net * cases + case[:, None]) * units + unit[None, :]
    w_at = weight + net * _weights(outputs, units) + _weight_at(out[None, :], unit[:, None], units)
    total = tl.zeros((CASES, OUT), tl.float32)
    for start in range(0, units, BLOCK):
        left = unit < units - start
        a = tl.load(a_at, mask=(case[:, None] < cases) & left[None, :], other=0.0)
        w = tl.load(w_at, mask=(out[None, :] < outputs) & left[:, None], other=0.0)
        total = tl.dot(a, w, total, input_precision=PRECISION)
        a_at += BLOCK
        w_at += BLOCK * SIDE
    total += tl.load(bias + net * outputs + out, mask=out < outputs, other=0.0)[None, :]
    total = tl.where(out[None, :] < outputs, total, -float("inf"))
    largest = tl.max(total, 1)
    exponent = tl.exp(total - largest[:, None])
    total_exponent = tl.sum(exponent, 1)
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
def backward_layer(
    delta, weight, slopes, scales, out, scaled_out, cases, units, inputs: tl.constexpr, delta_width: tl.constexpr,
    SCALED: tl.constexpr, PRECISION: tl.constexpr, CASES: tl.constexpr, INPUTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Derivatives by the total inputs of the layer below, from those of the layer above times its scales.

    With SCALED they are also stored times the scales of their own layer, for the layer below that.
    """
    net = tl.program_id(2).to(tl.int64)
    case = tl.program_id(1) * CASES + tl.arange(0, CASES)
    column = tl.program_id(0) * INPUTS + tl.arange(0, INPUTS)
    unit = tl.arange(0, BLOCK)
    real = column < inputs
    place = (net * cases + case[:, None]) * inputs + column[None, :]
    inside = (case[:, None] < cases) & real[None, :]
    slope = tl.load(slopes + place, mask=inside, other=0.0)
    scale = tl.load(scales + net * inputs + column, mask=real, other=0.0)
    d_at = delta + (net * cases + case[:, None]) * delta_width + unit[None, :]
    w_at = weight + net * _weights(units, inputs) + _weight_at(unit[:, None], column[None, :], inputs)
    back = tl.zeros((CASES, INPUTS), tl.float32)
    for start in range(0, delta_width, BLOCK):
        left = unit < units - start
        d = tl.load(d_at, mask=(case[:, None] < cases) & left[None, :], other=0.0)
        w = tl.load(w_at, mask=left[:, None] & real[None, :], other=0.0)
        back = tl.dot(d, w, back, input_precision=PRECISION)
        d_at += BLOCK
        w_at += BLOCK * SIDE * tl.cdiv(inputs, SIDE)
    back *= slope.to(tl.float32)
    tl.store(out + place, back.to(out.dtype.element_ty), mask=inside)
    if SCALED:
        tl.store(scaled_out + place, (back * scale[None, :]).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _derivatives(delta, case, unit, cases, units, delta_width):
    """(units, cases): derivatives of the loss by the total inputs of units, zeros for what is not there."""
    there = (unit[:, None] < units) & (case[None, :] < cases)
    return tl.load(delta + case[None, :] * delta_width + unit[:, None], mask=there, other=0.0)


@triton.jit
def gradient_step(
    delta, below, weight, rest, velocity, powers, scales, squares, bias, bias_velocity, steps, momentum_at, moved,
    cases: tl.constexpr, units, inputs: tl.constexpr, delta_width: tl.constexpr, widest,
    BOUND: tl.constexpr, SPLIT: tl.constexpr, PRECISION: tl.constexpr,
    UNITS: tl.constexpr, CASES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradient product, momentum and step of a tile of weights; its rows' squared lengths.

    SPLIT weights are float32 in two halves: the nearest bfloat16, which the products read, and in `rest` what their
    bits differ by. Velocities are then float16, multiplied by a power of two, a net's own. `moved` is set for units
    with any gradient.
    """
    net = tl.program_id(2).to(tl.int64)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = unit < units
    # Distances inside a net fit 32 bits, which takes fewer registers.
    delta += net * cases * delta_width
    below += net * cases * inputs
    size = _weights(units, inputs)
    weight += net * size
    velocity += net * size
    rest += net * size
    step, momentum, power = tl.load(steps + net), tl.load(momentum_at), tl.load(powers + net)
    scale = tl.full((UNITS,), 1.0, tl.float32)
    if BOUND:
        scale = tl.load(scales + net * units + unit, mask=real, other=0.0)
    case = tl.arange(0, CASES)
    inside = real[:, None] & (column[None, :] < inputs)
    place = _weight_at(unit[:, None], column[None, :], inputs)
    w = tl.load(weight + place, mask=inside, other=0.0)
    low = w
    if SPLIT:
        low = tl.load(rest + place, mask=inside, other=0)
    v = tl.load(velocity + place, mask=inside, other=0.0)
    gradient = tl.zeros((UNITS, BLOCK), tl.float32)
    for start in range(0, cases, CASES):
        there = (start + case[:, None] < cases) & (column[None, :] < inputs)
        a = tl.load(below + (start + case[:, None]) * inputs + column[None, :], mask=there, other=0.0)
        d = _derivatives(delta, start + case, unit, cases, units, delta_width)
        gradient = tl.dot(d, a, gradient, input_precision=PRECISION)
    if SPLIT:
        w = (w.to(tl.float32).to(tl.int32, bitcast=True) + low.to(tl.int32)).to(tl.float32, bitcast=True)
        v = v.to(tl.float32) * (1.0 / power)
    if BOUND:
        w *= scale[:, None]
    v = momentum * v - step * gradient
    w += v
    if SPLIT:
        kept = tl.minimum(tl.maximum(v * power, -65504.0), 65504.0)  # of float16: no net comes back from infinity
        tl.store(velocity + place, kept.to(tl.float16), mask=inside)
        bits = w.to(tl.int32, bitcast=True)
        high = (bits + 0x8000) & -0x10000
        tl.store(weight + place, high.to(tl.float32, bitcast=True).to(tl.bfloat16), mask=inside)
        tl.store(rest + place, (bits - high).to(tl.int16), mask=inside)
    else:
        tl.store(velocity + place, v, mask=inside)
        tl.store(weight + place, w, mask=inside)
    if BOUND:
        part = net * tl.num_programs(0) + tl.program_id(0)
        tl.store(squares + part * units + unit, tl.sum(w * w, 1), mask=real)
        tl.store(moved + net * widest + unit, 1, mask=real & (tl.max(tl.abs(gradient), 1) > 0))
    if tl.program_id(0) == 0:
        bias_gradient = tl.zeros((UNITS,), tl.float32)
        for start in range(0, cases, CASES):
            d = _derivatives(delta, start + case, unit, cases, units, delta_width)
            bias_gradient += tl.sum(d.to(tl.float32), 1)
        at = net * units + unit
        change = momentum * tl.load(bias_velocity + at, mask=real, other=0.0) - step * bias_gradient
        tl.store(bias_velocity + at, change, mask=real)
        tl.store(bias + at, tl.load(bias + at, mask=real, other=0.0) + change, mask=real)
