from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.decoding.pieces import Piece
from transduce.decoding.settings import SearchSettings
from transduce.serving.waiting import Group, Request, WaitingLine


def group(is_bulk: bool = False) -> Group:
    return Group(None, 0, SearchSettings(), (), True, is_bulk)


def piece(*ids: int) -> Piece:
    return Piece(" ".join(map(str, ids)), list(ids), 0, 0, [], [])


def request(outcomes: dict[int, object] | None = None) -> Request:
    return Request(
        lambda number, outcome: (outcomes if outcomes is not None else {}).update({number: outcome})
    )


def add(line: WaitingLine, who: Request, *sentences: int, where: Group | None = None) -> None:
    for number, sentence in enumerate(sentences):
        line.add(who, number, where or group(), piece(sentence), aligned=False)


def test_requests_take_turns_whatever_their_size():
    line, large, small = WaitingLine(), request(), request()
    add(line, large, *range(100))
    add(line, small, 1000)
    taken = [task.piece.ids[0] for task in line.take(group(), 3)]
    assert taken == [0, 1000, 1]


def test_the_same_sentence_is_computed_once_and_delivered_to_everybody():
    line, first, second = WaitingLine(), request(), request()
    add(line, first, 7)
    add(line, second, 7)
    (task,) = line.take(group(), 10)
    third = request()
    add(line, third, 7)  # it is running by now
    assert not line.take(group(), 10)
    assert {id(who) for who, _ in line.finish(task)} == {id(first), id(second), id(third)}
    add(line, third, 7)  # computed again: nothing is kept
    assert len(line) == 1


def test_a_shared_sentence_is_brought_forward_by_the_request_whose_turn_comes_first():
    line, large, small = WaitingLine(), request(), request()
    add(line, large, *range(50))
    add(line, small, 49)
    assert [task.piece.ids[0] for task in line.take(group(), 2)] == [0, 49]


def test_a_cancelled_request_leaves_nothing_behind():
    line, who = WaitingLine(), request()
    add(line, who, 1, 2, 3)
    (running,) = line.take(group(), 1)
    assert line.cancel(who) == [running]
    assert len(line) == 0
    assert not line.take(group(), 10)
    assert not list(line.groups())


def test_a_sentence_that_somebody_else_waits_for_survives_a_cancellation():
    line, first, second = WaitingLine(), request(), request()
    add(line, first, 5)
    add(line, second, 5)
    assert line.cancel(first) == []
    (task,) = line.take(group(), 1)
    assert [who for who, _ in line.finish(task)] == [second]


def test_sampled_sentences_of_equal_text_are_not_shared():
    line, first, second = WaitingLine(), request(), request()
    sampling = Group(None, 0, SearchSettings(sample=True, beam=4), (), False, False)
    line.add(first, 0, sampling, piece(1), aligned=False)
    other = Piece("1", [1], 1, 0, [], [])
    line.add(second, 0, sampling, other, aligned=False)
    assert len(line) == 2


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["add", "take", "cancel", "finish"]), st.integers(0, 5)), max_size=60)
)
def test_every_sentence_is_taken_at_most_once_and_counted_exactly(actions):
    line, requests, running = WaitingLine(), [request() for _ in range(6)], []
    for action, number in actions:
        if action == "add":
            add(line, requests[number], number, number + 1, 100 + number)
        elif action == "take":
            running += line.take(group(), number)
        elif action == "cancel":
            for task in line.cancel(requests[number]):
                running.remove(task)
        elif running:
            line.finish(running.pop())
        assert len({id(task) for task in running}) == len(running)
        assert len(line) >= 0
    rest = line.take(group(), 10_000)
    assert all(task.listeners for task in rest)
    assert len(line) == 0


def test_nothing_stays_in_the_queues_when_shared_sentences_are_done():
    line, first, second = WaitingLine(), request(), request()
    add(line, first, 1, 1, 2)
    add(line, second, 1, 2)
    assert len(line.take(group(), 10)) == 2
    assert not line._queues
