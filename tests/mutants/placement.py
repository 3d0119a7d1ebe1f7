"""Wrong choices about placement: of new ranges, of repairs, of moves."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_PLACER = "rangelog_pd.placement"
_COPY = "rangelog_pd.reconcile.copy_target"
_DIRECTIVES = "rangelog_pd.reconcile.directives"
_MOVES = "rangelog_pd.reconcile.rebalancing"
_OWNERS = "rangelog_pd.reconcile.assigning"
_SEVERAL = "rangelog_cli.several"

PLACEMENT: tuple[Mutant, ...] = (
    rare("repair-beside-another", "repairs put replicas into one zone, which is then lost as a whole", _COPY,
         "for each in staying if (row :=", "for each in staying[:0] if (row :=", "pd/reconcile/test_pd_repair_placement.py"),
    rare("labels-ignored", "replicas lie on servers that their stream excludes", _PLACER,
         "spread.shares_host(each) or not policy.admits(each):\n", "spread.shares_host(each):\n",
         "pd/test_pd_placement.py"),
    rare("two-copies-on-a-host", "a range has two copies on servers of one host, which fail together", _PLACER,
         "if name in passed_over or spread.shares_host(each) or", "if name in passed_over or", "pd/test_pd_placement.py"),
    rare("hosts-counted-as-servers", "a new range is acked by two servers of the only host", _PLACER,
         "            _left(self.alive, alive),\n", "            sum(self.alive.values()) - alive.total(),\n",
         "pd/test_pd_placement.py"),
    rare("repair-forgets-hosts", "a repair puts a second copy on a host", _COPY,
         "Place(each.zone, each.rack, each.host)", "Place(each.zone, each.rack)", "pd/reconcile/test_pd_repair_placement.py"),
    rare("rebalance-onto-one-host", "a rebalance puts a second copy on a host", _MOVES,
         "    if target.host and any(", "    if False and any(", "pd/reconcile/test_pd_rebalancing.py"),
    rare("lost-host-inherits", "the shards of a lost host go to its other broker, which is lost as well", _OWNERS,
         "if owner is None or not owner.lost or not owner.host:", "if True:", "pd/reconcile/test_pd_assigning.py"),
    rare("processes-without-a-host", "the processes of one host count as machines of their own", _SEVERAL,
         '"host": host,', '"host": settings.host,', "cli/test_several.py"),
    rare("dead-zones-count", "a policy of three zones is kept by servers that are dead", _PLACER,
         "            _add(self.zones, candidate.zone, one)\n", "        _add(self.zones, candidate.zone, one)\n",
         "pd/test_pd_placement.py"),
    rare("rebalance-in-circles", "a rebalance moves the same replicas to and fro for ever", _MOVES,
         "            if name == source or self._share(name, size_bytes) > left:\n", "            if name == source:\n",
         "pd/reconcile/test_pd_rebalancing.py"),
    rare("rebalance-closer-together", "a rebalance puts two replicas into one zone", _MOVES,
         "        if would_be < was:\n", "        if False:\n", "pd/reconcile/test_pd_rebalancing.py"),
    rare("rebalance-counts-former-copies", "a rebalance moves too much: what it moved away is not dropped yet", _MOVES,
         "heard.held_bytes - leaving.get(each.server, 0) +", "heard.held_bytes +", "pd/reconcile/test_pd_rebalancing.py"),
    rare("rebalance-forgets-what-stays", "a server with copies that stay for ever is taken for an empty one", _MOVES,
         "if not is_dropped_once_replaced(state, key):\n", "if False:\n", "pd/reconcile/test_pd_rebalancing.py"),
    rare("moved-before-copied", "a moved replica's source is dropped while the copy is made", _DIRECTIVES,
         "        return enough and all(self.is_whole(found, each) for each in found.replicas if each.reason == _MOVED)\n",
         "        return enough\n",
         "pd/reconcile/test_pd_rebalancing.py"),
)  # fmt: skip
