"""The drawing of a stream: boxes of ranges, replicas and objects at their places, each with all that it shows in words."""

from __future__ import annotations

from typing import Any

from rangelog_page.drawing import LANES_MAX, Drawing, draw


def replica(server: str, health: str = "alive") -> dict[str, Any]:
    return {"server": server, "health": health, "reason": "new zone", "data_address": f"{server}:7180"}


def made(index: int, start: int, end: int | None, servers: str = "rs1 rs2 rs3", **more: Any) -> dict[str, Any]:
    """A range as range_view has it."""
    return {
        "index": index, "start_offset": start, "end_offset": end, "state": "open" if end is None else "sealed",
        "lost": False, "hot_dropped": False, "tiered_end_offset": 0, "epoch": 1,
        "replicas": [replica(each) for each in servers.split()],
    } | more  # fmt: skip


def stored(object_id: int, start: int, end: int) -> dict[str, Any]:
    """An object as object_view has it."""
    return {
        "object_id": object_id,
        "start_offset": start,
        "end_offset": end,
        "size_bytes": 2048,
        "key": f"s/{object_id}.parquet",
    }


def lanes(drawing: Drawing) -> dict[str, list[tuple[str, float]]]:
    return {lane.name: [(box.kind, round(box.place)) for box in lane.boxes] for lane in drawing.lanes}


def test_what_is_drawn() -> None:
    """A lane for the ranges, one for each server with its replicas, one for the tier; the last range is open."""
    ranges = [made(0, 0, 100), made(1, 100, 200, "rs1 rs2 rs4"), made(2, 200, None, "rs1 rs2 rs4")]
    drawing = draw(ranges, [stored(7, 0, 100)], trim_offset=0, end_offset=300)
    assert lanes(drawing) == {
        "ranges": [("sealed", 0), ("sealed", 33), ("open", 67)],
        "rs1": [("replica", 0), ("replica", 33), ("replica", 67)],
        "rs2": [("replica", 0), ("replica", 33), ("replica", 67)],
        "rs3": [("replica", 0)],
        "rs4": [("replica", 33), ("replica", 67)],
        "tier": [("object", 0)],
    }
    assert drawing.trimmed_width == 0.0 and drawing.servers_left_out == 0
    assert [(round(each.place), each.offset) for each in drawing.ticks] == [(0, 0), (33, 100), (67, 200), (100, 300)]


def test_words_say_what_a_box_shows() -> None:
    """Range, offsets, servers, epoch; of a replica why its server was chosen; of an object its size and key."""
    ranges = [made(0, 0, 100, tiered_end_offset=100, epoch=4), made(1, 100, None)]
    drawing = draw(ranges, [stored(7, 0, 100)], trim_offset=0, end_offset=None)
    by_name = {lane.name: lane for lane in drawing.lanes}
    sealed, opened = by_name["ranges"].boxes
    assert sealed.tooltip == (
        "range 0, sealed; offsets 0 to 100; replicas on rs1 (alive), rs2 (alive), rs3 (alive); tiered up to 100; "
        "writer's epoch 4"
    )
    assert "range 1, open; offsets 100 to an end that is not known now" in opened.tooltip
    assert "chosen: new zone; at rs1:7180" in by_name["rs1"].boxes[0].tooltip
    assert by_name["tier"].boxes[0].tooltip == "object 7; offsets 0 to 100; 2.0 KiB; key s/7.parquet"


def test_what_is_trimmed_lost_dropped_or_on_a_dead_server() -> None:
    """Each is drawn otherwise, and said."""
    dead = made(2, 200, 300) | {"replicas": [replica("rs1", "dead"), replica("rs2", "suspect")]}
    ranges = [made(0, 0, 100, ""), made(1, 100, 200, "", lost=True, hot_dropped=True), dead]
    drawing = draw(ranges, [stored(1, 0, 50), stored(2, 50, 100)], trim_offset=100, end_offset=None)
    found = lanes(drawing)
    assert [kind for kind, _ in found["ranges"]] == ["trimmed", "lost", "sealed"]
    assert [kind for kind, _ in found["tier"]] == ["trimmed", "trimmed"]
    assert found["rs1"] == [("replica-dead", 51)] and found["rs2"] == [("replica-suspect", 51)]
    by_name = {lane.name: lane for lane in drawing.lanes}
    assert (by_name["rs1"].note, by_name["rs2"].note) == ("dead", "suspect")
    assert "no replica: the hot copies are dropped" in by_name["ranges"].boxes[1].tooltip
    assert round(drawing.trimmed_width) == 49


def test_a_trim_within_a_range() -> None:
    """The part below the trim offset is marked; the range is not trimmed as a whole."""
    drawing = draw([made(0, 0, 100)], [], trim_offset=25, end_offset=None)
    assert lanes(drawing)["ranges"] == [("sealed", 0)] and drawing.trimmed_width == 25.0


def test_an_object_of_several_ranges_reaches_over_them() -> None:
    """A packed object lies below all the ranges whose records it has."""
    ranges = [made(0, 0, 100), made(1, 100, 200)]
    (box,) = draw(ranges, [stored(1, 0, 200)], trim_offset=0, end_offset=None).lanes[-1].boxes
    assert (box.place, box.width) == (0.0, 100.0)


def test_many_servers_do_not_make_many_lanes() -> None:
    """Those with most replicas have one; the others are counted."""
    ranges = [made(each, each, each + 1, f"rs{each} common") for each in range(30)]
    drawing = draw(ranges, [], trim_offset=0, end_offset=None)
    assert len(drawing.lanes) == LANES_MAX + 2 and drawing.servers_left_out == 31 - LANES_MAX
    assert "common" in lanes(drawing)
    assert len(drawing.ticks) <= 5


def test_no_range() -> None:
    """Nothing is drawn of a stream that nobody has written to."""
    assert draw([], [], trim_offset=0, end_offset=None) == Drawing((), (), 0.0)
