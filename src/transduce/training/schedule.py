"""Learning-rate schedules (section 5.3)."""


def paper_schedule(step: int, *, d_model: int, warmup: int) -> float:
    """``d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)`` (equation 3).

    Rises in a straight line for ``warmup`` steps, then falls with the square root. The first step is 1.
    """
    if step < 1:
        raise ValueError(f"steps are counted from 1, not {step}")
    return float(d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))
