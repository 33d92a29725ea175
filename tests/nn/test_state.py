import torch
from hypothesis import given
from hypothesis import strategies as st

from transduce.nn.state import DecoderState, KeyValue, KeyValueCache, select_caches

actions = st.lists(
    st.integers(1, 3).map(lambda n: ("append", n))
    | st.lists(st.integers(0, 99), min_size=1, max_size=6).map(lambda rows: ("select", rows)),
    max_size=12,
)


@given(actions=actions, capacity=st.integers(0, 20), batch=st.integers(1, 4))
def test_a_cache_is_concatenation_and_indexing(actions, capacity, batch):
    cache = KeyValueCache(capacity)
    keys, values = torch.empty(batch, 2, 0, 3), torch.empty(batch, 2, 0, 5)
    for action, what in actions:
        if action == "append":
            new = KeyValue(torch.randn(len(keys), 2, what, 3), torch.randn(len(keys), 2, what, 5))
            keys, values = torch.cat((keys, new.key), 2), torch.cat((values, new.value), 2)
            held = cache.append(new)
            assert torch.equal(held.key, keys)
            assert torch.equal(held.value, values)
        elif cache.length:
            rows = torch.tensor(what) % len(keys)
            keys, values = keys[rows], values[rows]
            select_caches([cache], rows)
            held = cache.filled()
            assert torch.equal(held.key, keys)
            assert torch.equal(held.value, values)
        assert cache.length == keys.size(2)


def test_memory_is_reserved_once():
    cache = KeyValueCache(capacity=10)
    first = cache.append(KeyValue(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2)))
    for _ in range(9):
        last = cache.append(KeyValue(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2)))
    assert last.key.data_ptr() == first.key.data_ptr()


def test_hypotheses_of_one_source_can_get_sources_of_their_own():
    """The same rows in another shape: two targets of each source become targets of sources of their own."""
    memory = KeyValue(torch.randn(3, 1, 4, 2), torch.randn(3, 1, 4, 2))
    mask = torch.ones(3, 4, dtype=torch.bool)
    state = DecoderState([memory], mask, [KeyValueCache(5)], width=2)
    state.caches[0].append(KeyValue(torch.randn(6, 1, 1, 2), torch.randn(6, 1, 1, 2)))
    before = memory.key.clone()
    state.select(torch.arange(6))
    assert (state.width, state.targets) == (1, 6)
    assert torch.equal(state.memory[0].key, before.repeat_interleave(2, dim=0))
