"""Faults, drawn per seed: which kinds, how often. At most one disk is lost, rolled back or rotten before all is repaired."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rangelog_server.identity import DirectoryIdentity
from tests.fakes.disk import FLUSH, WRITE
from tests.simulation.rotten_tail import RottenTail
from tests.simulation.scenario_behind import Behind
from tests.simulation.scenario_far_drivers import FarDrivers
from tests.simulation.scenario_lost_acks import LostAcks
from tests.simulation.scenario_old_disk import OldDisk
from tests.simulation.virtual_ambushes import Ambushes
from tests.simulation.virtual_clients import Clients
from tests.simulation.virtual_cluster import VirtualCluster
from tests.simulation.virtual_disk import ServerDisk
from tests.simulation.virtual_leader_deaths import LeaderDeaths
from tests.simulation.virtual_server import VirtualServer
from tests.simulation.virtual_time import WORLD

DOWN_MAX = 2
WRITERS_MAX = 10


class Faults:
    """See the module."""

    def __init__(self, cluster: VirtualCluster, clients: Clients) -> None:
        self.cluster, self.clients = cluster, clients
        self.chance = cluster.chance
        self.loop = cluster.loop
        self.running = False
        kinds: list[Callable[[], None]] = [
            self.crash, self.power_cut, self.power_cut_all, self.pause, self.partition, self.one_way, self.reset,
            self.pd_crash, self.pd_pause, self.client_pause, self.client_kill, self.lose_disk, self.roll_back, self.roll_back,
            self.rot, self.rot_tail, self.rot_middle, self.flush_fails, self.disk_full, self.refuse_append, self.slow_disk,
            self.slow_host, self.object_trouble, self.skew,
        ]  # fmt: skip
        self._kinds = [kind for kind in kinds if self.chance.random() < 0.5] or kinds
        self._mean_s = self.chance.choice([0.2, 0.5, 1.5])
        self._length_s = self.chance.choice([0.3, 1.0, 4.0, 10.0])
        self._ambushes = Ambushes(self)
        cluster.ambush = self._ambushes.ambush
        cluster.on_step = LeaderDeaths(self).step
        cluster.network.loss = self.chance.choice([0.0, 0.02, 0.1])
        cluster.network.jitter = self.chance.choice([0.02, 0.1, 0.3])
        self._rotten_tail = RottenTail(self)
        self._rotten = False
        self._one_clock = False  # with a retention, one clock at a time is wrong
        self._images: dict[str, tuple[ServerDisk, int]] = {}  # an older copy, and where its log ended
        self._put_back: dict[str, ServerDisk] = {}
        """Copies that are the disks of their servers, until they are found out."""

    def tell(self, story: str) -> None:
        """No drawn faults: one story, whose every turn is an ambush. Some wrong choices need all of them in order."""
        self._kinds = [self.slow_disk]
        self.cluster.tier.end_faults()
        self._ambushes.only()
        if story == "the deposed writer comes back when all servers have restarted":
            self._ambushes.only(open_writer=1.0, decided=1.0)
        elif story == "a recoverer's copy arrives when another one has sealed":
            self._ambushes.only(copying=1.0)
            self._kinds = [self.slow_disk, self.crash, self.client_kill]
            self._length_s = 4.0
        elif story == "an append is refused while more are on their way":
            self._kinds = [self.slow_disk, self.refuse_append, self.refuse_append]
            self._mean_s = 0.2
        elif story == "a writer about to seal reaches one replica, and another writer takes the stream":
            self._ambushes.cut_off = True
            self._ambushes.only(frozen=1.0)
            self._kinds = [self.slow_disk, self.crash]
        elif story.endswith("is put in place just when its word decides"):
            OldDisk(self.cluster, self.clients, self.chance, empty="empty" in story).begin()
        elif story in (LostAcks.STORY, LostAcks.EARLY):
            early = story == LostAcks.EARLY
            LostAcks(self.cluster, self.clients, self.chance, lambda: self.running, early=early).begin()
        elif story == "older copies of disks are put back all the while":
            self._kinds = [self.slow_disk, self.roll_back, self.roll_back]
            self._mean_s = 0.3
        elif story == Behind.STORY:
            Behind(self.cluster, self.clients, self.chance, lambda: self.running).begin()
        elif story.startswith("the placement drivers are far away"):
            self._kinds = [self.client_kill]
            self._mean_s = 1.0
            FarDrivers(self.cluster, self.clients).begin()
        self.cluster.note(f"story: {story}")

    def turn_clocks(self) -> None:
        """Wall clocks jump all the time: the main stream has a retention."""
        self._kinds += [self.skew] * max(1, len(self._kinds) // 3)
        self._one_clock = True

    def start(self) -> None:
        """Begin."""
        self.running = True
        self.loop.call_in(WORLD, self.chance.uniform(0.2, 1.5), self._next)

    def stop(self) -> None:
        """No faults any more, and everything that was broken is put right."""
        self.running = False
        cluster = self.cluster
        cluster.network.loss, cluster.network.jitter = 0.0, 0.02
        cluster.tier.end_faults()
        cluster.network.slow_s.clear()
        cluster.network.heal()
        for server in cluster.servers.values():
            self._whole(server)
        for name, process in cluster.pds.items():
            if not process.alive:
                cluster.start_pd(name)
            elif process.paused:
                self.loop.resume(process)
        for process in self.clients.processes.values():
            if process.paused:
                self.loop.resume(process)
        self.loop.call_in(WORLD, 1.0, self._keep_up)

    def _keep_up(self) -> None:
        """A supervisor starts again what ends by itself."""
        for server in self.cluster.servers.values():
            self._whole(server)
        self.loop.call_in(WORLD, 1.0, self._keep_up)

    def _whole(self, server: VirtualServer) -> None:
        server.flush_s = 0.0003
        server.disk.io.failing = ""
        server.disk.io.free_bytes = 1 << 40
        if not server.up:
            server.start()
        elif server.life.paused:
            self.loop.resume(server.life)

    def _next(self) -> None:
        if not self.running:
            return
        self.chance.choice(self._kinds)()
        self.loop.call_in(WORLD, self.chance.expovariate(1 / self._mean_s), self._next)

    # ---- choosing

    def living_server(self) -> VirtualServer | None:
        """A living one, if enough others live."""
        servers = list(self.cluster.servers.values())
        if sum(not server.up for server in servers) >= DOWN_MAX:
            return None
        up = [server for server in servers if server.up]
        return self.chance.choice(up)

    def later(self, call: Callable[[], Any]) -> None:
        """Mend something after a while, if the calm has not done so."""
        self.loop.call_in(WORLD, self.chance.expovariate(1 / self._length_s), lambda: self.running and call())

    def start_again(self, server: VirtualServer) -> None:
        """Unless it runs."""
        if not server.up:
            server.start()

    def disks_are_whole(self) -> bool:
        """Every member of every range is who it was when it became one, and all sealed ranges are repaired."""
        if self._rotten:
            return False  # it may not have been noticed yet
        if any(self.cluster.servers[name].disk is image for name, image in self._put_back.items()):
            return False  # nor may an older copy, while its server is down
        state: Any = self.cluster.state
        for name, registered in state.servers.items():
            identity = self.cluster.servers[name].disk.identity
            if identity is None or identity.incarnation != registered.server.incarnation:
                return False  # ranges may still be placed on what is gone
        return all(self.cluster.is_whole(each) for each in state.ranges.values())

    # ---- writers

    def another_writer(self) -> None:
        """One more takes the main stream."""
        if self._writers() < WRITERS_MAX:
            name = f"w{len(self.clients.processes)}x"
            self.clients.start(name, self.clients.write(name, self.chance.randrange(20, 300), 0.02))

    def _writers(self) -> int:
        return sum(name.startswith("w") for name in self.clients.processes)

    # ---- processes

    def crash(self) -> None:
        """kill -9 of a range server."""
        if server := self.living_server():
            self.cluster.note("crash")
            server.stop(power=False)
            self.later(lambda: self.start_again(server))

    def power_cut(self) -> None:
        """One machine loses power."""
        if server := self.living_server():
            self.cluster.note("power cut")
            server.stop(power=True)
            self.later(lambda: self.start_again(server))

    def power_cut_all(self) -> None:
        """All machines of range servers do."""
        if self.chance.random() < 0.3:
            self.cut_all()

    def cut_all(self) -> None:
        """All machines of range servers lose power, and often a writer dies as well."""
        if not self.running:
            return
        self.cluster.note("power cut of all")
        if self.chance.random() < 0.6:
            self.client_kill()
        for server in self.cluster.servers.values():
            server.stop(power=True)
            self.later(lambda s=server: self.start_again(s))  # type: ignore[misc]

    def pause(self) -> None:
        """SIGSTOP of a range server."""
        if (server := self.living_server()) and not server.life.paused:
            self.cluster.note("pause")
            life = server.life
            self.loop.pause(life)
            self.later(lambda: life.paused and self.loop.resume(life))

    def pd_crash(self) -> None:
        """kill -9 of a placement driver, mostly of the leader."""
        name = self.cluster.group.leader or "pd1"
        if self.chance.random() < 0.3:
            name = self.chance.choice(list(self.cluster.pds))
        if sum(process.alive for process in self.cluster.pds.values()) == 3:
            self.cluster.note("pd crash")
            self.cluster.kill_pd(name)
            self.later(lambda: self.cluster.pds[name].alive or self.cluster.start_pd(name))

    def pd_pause(self) -> None:
        """SIGSTOP of the leader."""
        process = self.cluster.pds.get(self.cluster.group.leader or "")
        if process is not None and process.alive and not process.paused:
            self.cluster.note("pd pause")
            self.loop.pause(process)
            self.later(lambda: process.paused and self.loop.resume(process))

    def client_pause(self) -> None:
        """SIGSTOP of a client: it comes back when others went on."""
        running = [each for each in self.clients.processes.values() if each.alive and not each.paused]
        if running:
            process = self.chance.choice(running)
            self.cluster.note("client paused")
            self.loop.pause(process)
            self.later(lambda: process.paused and self.loop.resume(process))

    def client_kill(self) -> None:
        """kill -9 of a writer; another one comes."""
        writers = [name for name, each in self.clients.processes.items() if each.alive and name.startswith("w")]
        if writers and self._writers() < WRITERS_MAX:
            self.clients.kill(self.chance.choice(writers))
            self.another_writer()

    # ---- network

    def _hosts(self) -> list[str]:
        return [*self.cluster.servers, *self.cluster.pds, *self.clients.processes]

    def partition(self) -> None:
        """One host hears nobody, or not some others."""
        victim = self.chance.choice(self._hosts())
        others = [host for host in self._hosts() if host != victim]
        if self.chance.random() < 0.5:
            others = self.chance.sample(others, self.chance.randrange(1, len(others)))
        self.cut([(victim, other) for other in others] + [(other, victim) for other in others], "partition")

    def one_way(self) -> None:
        """One host is heard by nobody, or hears nobody."""
        victim = self.chance.choice(self._hosts())
        others = [host for host in self._hosts() if host != victim]
        pairs = [(victim, other) for other in others]
        if self.chance.random() < 0.5:
            pairs = [(other, victim) for victim, other in pairs]
        self.cut(pairs, "one-way partition")

    def cut(self, pairs: list[tuple[str, str]], what: str) -> None:
        """These hear nothing from those, for a while."""
        self.cluster.note(what)
        self.cluster.network.cuts.update(dict.fromkeys(pairs))
        self.later(self.cluster.network.heal)

    def reset(self) -> None:
        """All connections of one host break."""
        self.cluster.note("connections reset")
        self.cluster.network.reset(self.chance.choice(list(self.cluster.servers)))

    def slow_host(self) -> None:
        """Everything from and to one host takes longer."""
        host = self.chance.choice(self._hosts())
        self.cluster.note("slow host")
        self.cluster.network.slow_s[host] = self.chance.choice([0.01, 0.1, 0.5])
        self.later(lambda: self.cluster.network.slow_s.pop(host, None))

    # ---- disks

    def slow_disk(self) -> None:
        """A flush takes 200 ms."""
        server = self.chance.choice(list(self.cluster.servers.values()))
        self.cluster.note("slow disk")
        server.flush_s = self.chance.choice([0.02, 0.2, 1.0])

        def well() -> None:
            server.flush_s = 0.0003

        self.later(well)

    def flush_fails(self) -> None:
        """fdatasync answers EIO, and the kernel forgets the pages."""
        if server := self.living_server():
            self.cluster.note("flush failed: the process ended")
            server.disk.io.failing = self.chance.choice([FLUSH, FLUSH, WRITE])

            def again() -> None:
                server.disk.io.failing = ""
                self.start_again(server)

            self.later(again)

    def disk_full(self) -> None:
        """No segment can be made."""
        server = self.chance.choice(list(self.cluster.servers.values()))
        self.cluster.note("disk full")
        server.disk.io.free_bytes = 0
        if self.chance.random() < 0.5:
            return  # until the calm

        def room() -> None:
            server.disk.io.free_bytes = 1 << 40

        self.later(room)

    def refuse_append(self) -> None:
        """The next segment is ready a moment too late for one append: what follows it finds room."""
        server = self.chance.choice(list(self.cluster.servers.values()))
        if server.refuse_append():
            self.cluster.note("append refused")

    def lose_disk(self) -> None:
        """The data directory is gone."""
        if self.disks_are_whole() and (server := self.living_server()):
            self.cluster.note("disk lost")
            server.stop(power=True)
            server.lose_disk()
            self.later(lambda: self.start_again(server))

    def roll_back(self) -> None:
        """An older copy of the data directory is put in place."""
        server = self.living_server()
        if server is None or server.disk.identity is None:
            return
        image, log_end = self._images.get(server.name, (None, 0))
        if image is None or image.identity is None or image.identity.incarnation != server.disk.identity.incarnation:
            self._copy_disks()
        elif self.disks_are_whole() and self._is_found_out(server.name, image.identity, log_end):
            self.cluster.note("disk rolled back")
            if image.identity.boot == server.disk.identity.boot:
                self.cluster.note("disk rolled back within one run")
            server.stop(power=True)
            del self._images[server.name]
            self._put_back[server.name] = image
            server.roll_back(image)
            self.later(lambda: self.start_again(server))

    def _copy_disks(self) -> None:
        for server in self.cluster.servers.values():
            if server.store is not None:
                self._images[server.name] = server.disk.copy(), server.store.wal.log_end

    def _is_found_out(self, name: str, image: DirectoryIdentity, log_end: int) -> bool:
        """Whether the placement drivers have heard of what came after the copy: a later start, or a longer log.

        A later start of which they never heard took no appends, and what an earlier one wrote without their hearing of it is
        what they cannot miss: see "Not covered" in docs/decisions/2026-11-21-protocol-choices.md.
        """
        state: Any = self.cluster.state
        known = state.servers.get(name)
        if known is None or known.server.incarnation != image.incarnation:
            return False
        return known.server.boot > image.boot or known.log_end > log_end

    def rot(self) -> None:
        """A bit flips, in one place on one disk."""
        if not self.disks_are_whole():
            return
        server = self.chance.choice(list(self.cluster.servers.values()))
        if server.disk.rot(self.chance):
            self._rotten = True
            self.cluster.note("bit rot")

    def rot_tail(self) -> None:
        """The end of one disk's log rots. See RottenTail."""
        if self.disks_are_whole():
            self._rotten_tail.begin()

    def rot_middle(self) -> None:
        """The middle of one disk's log rots, in the same way."""
        if self.disks_are_whole():
            self._rotten_tail.begin(middle=True)

    def rot_before_last(self, server: VirtualServer, key: tuple[int, int]) -> None:
        """A bit flips in batches of a range that something was written behind."""
        if server.disk.rot_before_last(key, self.chance):
            self._rotten = True
            self.cluster.note("bit rot")

    def rot_last(self, server: VirtualServer) -> None:
        """A bit flips in what was written last."""
        if server.disk.rot_last(self.chance):
            self._rotten = True
            self.cluster.note("bit rot")

    # ---- else

    def object_trouble(self) -> None:
        """The object store has a bad time."""
        self.cluster.note("object store in trouble")
        self.cluster.tier.begin_trouble(self.chance.choice([0.05, 0.3]))
        self.later(self.cluster.tier.end_trouble)

    def skew(self) -> None:
        """A wall clock jumps by up to two hours."""
        processes = [*self.cluster.pds.values(), *[server.life for server in self.cluster.servers.values()]]
        process = self.chance.choice(processes)
        if self._one_clock:
            self.cluster.note("a clock jumped under retention")
            for other in processes:
                other.wall_skew_s = 0.0
        process.wall_skew_s = self.chance.uniform(-7200, 7200)
        self.cluster.note("clock skew")
