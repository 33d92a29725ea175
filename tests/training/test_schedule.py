import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.config import TrainingConfig
from transduce.training.schedule import make_schedule, paper_schedule


@given(d_model=st.integers(1, 4096), warmup=st.integers(1, 50_000), step=st.integers(1, 10**6))
def test_the_rate_rises_during_warmup_and_falls_after_it(d_model, warmup, step):
    def rate(s):
        return paper_schedule(s, d_model=d_model, warmup=warmup)

    assert 0 < rate(step) <= rate(warmup) * (1 + 1e-12)
    if step < warmup:
        assert rate(step) == pytest.approx(rate(warmup) * step / warmup)
        assert rate(step) < rate(step + 1) * (1 + 1e-12)
    else:
        assert rate(step) == pytest.approx((d_model * step) ** -0.5)


def test_values_of_the_papers_base_model():
    assert paper_schedule(4000, d_model=512, warmup=4000) == pytest.approx(6.987712429686844e-4)
    assert paper_schedule(1, d_model=512, warmup=4000) == pytest.approx(1.746928107421711e-7)


def test_steps_count_from_one():
    with pytest.raises(ValueError, match="counted from 1"):
        paper_schedule(0, d_model=512, warmup=4000)


@given(d_model=st.integers(1, 1024), warmup=st.integers(1, 5000), step=st.integers(1, 100_000))
def test_the_default_schedule_is_the_papers(d_model, warmup, step):
    rate = make_schedule(TrainingConfig(warmup=warmup), d_model)
    assert rate(step) == pytest.approx(paper_schedule(step, d_model=d_model, warmup=warmup))


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine", "linear"])
def test_every_schedule_rises_to_its_peak_and_falls(schedule):
    training = TrainingConfig(schedule=schedule, learning_rate=0.01, warmup=100, steps=1000)
    rates = [make_schedule(training, 512)(step) for step in range(1, 1001)]
    assert max(rates) == rates[99] == pytest.approx(0.01)
    assert rates[:100] == sorted(rates[:100])
    assert rates[99:] == sorted(rates[99:], reverse=True)
    assert rates[49] == pytest.approx(0.005)
    assert rates[-1] == pytest.approx({"inverse_sqrt": 0.01 * 0.1**0.5, "cosine": 0, "linear": 0}[schedule])
