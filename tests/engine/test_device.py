import pytest
import torch

from transduce.engine.device import choose_device, for_inference
from transduce.errors import ConfigError


def test_auto_is_a_gpu_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto") == torch.device("cuda")


def test_a_device_by_name(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("cuda:1") == torch.device("cuda:1")
    for name in ("cuda:2", "gpu", "cuda:x"):
        with pytest.raises(ConfigError, match=f"--device.*{name}"):
            choose_device(name)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ConfigError, match="--device"):
        choose_device("cuda")


@pytest.mark.parametrize(("native", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_precision_on_a_gpu_is_bfloat16_if_it_has_it(monkeypatch, native, dtype):
    model = torch.nn.Linear(2, 2)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: native)
    monkeypatch.setattr(model, "to", lambda place: model)
    assert for_inference(model, "auto", "cuda").weight.dtype == dtype
