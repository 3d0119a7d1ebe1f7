"""The regression guard of `make bench-smoke`: a slowdown by two fails it, noise and a busy machine do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from rangelog_bench import measurement as m
from rangelog_bench.command import NAMES, choose
from rangelog_bench.measurement import Measurement
from rangelog_bench.scratch import file_system_of, scratch
from rangelog_bench.smoke import Round, combine, make_round, read_baseline, slower, write_baseline
from rangelog_core.errors import ConfigInvalid, InvalidArgument

BASELINE = Path(__file__).resolve().parents[4] / "bench" / "baseline.json"


def measured(speed: float, *, others: float = 0.0) -> list[Measurement]:
    """What a system gives that is `speed` times as fast as the floor."""

    def rate(metric: str, size: int) -> Measurement:
        details = {"cpu_s_per_gb": 2.0 / speed, "cores_of_others": others}
        return Measurement("any", "any", metric, size, 100_000 * speed, m.RECORDS_PER_S, details)

    latency = Measurement("any", "any", m.LATENCY, 1024, 0.4 / speed, m.MS, {"cores_of_others": others})
    return [rate(m.APPEND, 1024), rate(m.APPEND, 100), rate(m.CATCHUP, 1024), latency]


def rounds(speed: float, *, others: float = 0.0, machine: float = 1.0) -> list[Round]:
    """Three rounds of a system at `speed` on a machine of which only a share is left."""
    ours, floor = measured(speed * machine, others=others), measured(machine, others=others)
    return [make_round(ours, floor)] * 3


def test_the_same_speed_passes() -> None:
    """Nothing is slower than itself."""
    kept = combine(rounds(0.5))
    assert len(kept) == 7
    assert slower(kept, combine(rounds(0.5))) == []


def test_twice_as_slow_fails_everywhere() -> None:
    """A doctored result, half as fast as the kept one, fails in each ratio, rates and latencies alike."""
    worse = slower(combine(rounds(0.5)), combine(rounds(0.25)))
    assert len(worse) == 7
    assert all("2.0 times slower" in line for line in worse)


@pytest.mark.parametrize("name", list(combine(rounds(0.5))))
def test_twice_as_slow_in_one_thing_fails(name: str) -> None:
    """One ratio that halved is enough, and it is the one that is named."""
    kept = combine(rounds(0.5))
    assert [line.split()[0] for line in slower(kept, kept | {name: kept[name] / 2})] == [name]


@pytest.mark.parametrize("name", list(read_baseline(BASELINE)))
def test_twice_as_slow_fails_against_the_kept_baseline(name: str) -> None:
    """The file in the repository catches a slowdown by two in each of its ratios."""
    kept = read_baseline(BASELINE)
    assert slower(kept, kept) == []
    assert [line.split()[0] for line in slower(kept, kept | {name: kept[name] / 2})] == [name]


def test_noise_passes() -> None:
    """A third slower is within the margin; faster always is."""
    kept = combine(rounds(0.5))
    assert slower(kept, combine(rounds(0.5 / 1.4))) == []
    assert slower(kept, combine(rounds(2.0))) == []


def test_a_slower_machine_passes() -> None:
    """Ten times less machine for both changes no ratio."""
    assert slower(combine(rounds(0.5)), combine(rounds(0.5, machine=0.1))) == []


def test_a_busy_machine_is_judged_by_processor_time_only() -> None:
    """Where others take a core, rates and latencies are left out, and a slowdown is found all the same."""
    found = combine(rounds(0.25, others=1.0))
    assert sorted(found) == ["append_100_cpu", "append_1k_cpu", "catchup_1k_cpu"]
    assert len(slower(combine(rounds(0.5)), found)) == 3


def test_a_baseline_reads_back(tmp_path: Path) -> None:
    """What is written is what is compared with later."""
    found = combine(rounds(0.5))
    write_baseline(tmp_path / "b.json", found)
    assert read_baseline(tmp_path / "b.json") == found


def test_no_baseline_is_written_on_a_busy_machine(tmp_path: Path) -> None:
    """Half a baseline would let slowdowns pass."""
    with pytest.raises(ConfigInvalid, match="busy"):
        write_baseline(tmp_path / "b.json", combine(rounds(0.5, others=1.0)))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"ratios": 3}', '{"ratios": {"a": "b"}}'])
def test_other_files_are_no_baseline(tmp_path: Path, text: str) -> None:
    """The errors for a damaged file and for a missing one differ, and each names what to do."""
    with pytest.raises(ConfigInvalid, match="does not exist"):
        read_baseline(tmp_path / "b.json")
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(ConfigInvalid, match="is not a baseline"):
        read_baseline(tmp_path / "b.json")


def test_only_takes_known_names() -> None:
    """What is asked for is measured in a fixed order; anything else is refused with the choices."""
    assert choose([], own_cluster=True) == list(NAMES)
    assert choose(["tail", "throughput"], own_cluster=True) == ["throughput", "tail"]
    with pytest.raises(InvalidArgument, match="choose of throughput"):
        choose(["speed"], own_cluster=True)


def test_somebody_elses_cluster_is_not_killed() -> None:
    """What kills or reconfigures servers is left out with --against, and refused when asked for."""
    assert not {"failover", "pd-failover", "cold"} & set(choose([], own_cluster=False))
    with pytest.raises(InvalidArgument, match="leave out --against"):
        choose(["failover"], own_cluster=False)


def test_memory_is_no_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory in memory gets a warning; the working directory goes at the end."""
    assert file_system_of(Path("/proc")) == "proc"
    monkeypatch.setattr("rangelog_bench.scratch.file_system_of", lambda path: "tmpfs")
    with scratch(tmp_path / "x") as directory:
        assert directory.is_dir()
    assert not directory.exists()
    assert "flushing costs nothing there" in capsys.readouterr().err
