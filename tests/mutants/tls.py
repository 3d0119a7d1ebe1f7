"""Wrong choices about TLS: who is let in, what is believed of a certificate, and files that change."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_TLS = "rangelog_core.net.tls"
_PEERS = "rangelog_core.net.tls_peers"
_WHO = "rangelog_core.net.principals"
_GRPC = "rangelog_server_common.grpc_server"
_MEMBER = "rangelog_pd.consensus.network.member_tls"
_PORTS, _FILES, _NAMES = "tls/test_ports.py", "core/net/test_tls.py", "core/net/test_principals.py"

TLS: tuple[Mutant, ...] = (
    rare("tls-asks-nobody", "whoever reaches a port is served, with no certificate at all", _TLS,
         "    context.verify_mode = ssl.CERT_OPTIONAL if tokens else ssl.CERT_REQUIRED\n",
         "    context.verify_mode = ssl.CERT_OPTIONAL\n", _PORTS),
    rare("tls-any-server", "a client sends its records to any holder of a certificate", _PEERS,
         "    if not principal.is_called(role, name):\n", "    if False:\n", _PORTS),
    rare("tls-any-name", "one range server answers for all others", _WHO,
         "        return self.role is role and self.name in (name, ANY_NAME)\n", "        return self.role is role\n", _NAMES),
    rare("tls-roles-of-frames-unchecked", "a placement driver's certificate reads and writes records", _PEERS,
         "    check_port(principal, port)\n    return principal\n", "    return principal\n", _PORTS),
    rare("tls-calls-unchecked", "a client's certificate calls the control port of a range server", _GRPC,
         "                    check_port(principal, self._port)\n                    self._rules.check(principal, method)\n",
         "                    pass\n", _PORTS),
    rare("tls-raft-for-all", "a client's certificate opens the Raft port", _MEMBER,
         "            check_port(principal, Port.PD_RAFT)\n", "", _PORTS),
    rare("tls-first-principal", "a certificate of two principals is of the one that is listed first", _WHO,
         "    if len(found) != 1:\n", "    if not found:\n", _NAMES),
    rare("tls-name-before-uri", "a common name that anybody may choose beats the URI", _WHO,
         "    if ours:\n", "    if ours and not any(\":\" in each for each in common_names):\n", _NAMES),
    rare("tls-unknown-service-for-all", "a service that is in no table is everybody's", _WHO,
         "self.roles.get(service, frozenset())", "self.roles.get(service, ALL)", _NAMES),
    rare("tls-speaks-for-others", "a range server's certificate registers another one, at an address of its choice", _GRPC,
         "                    self._rules.check_caller(principal, method, request)\n", "                    pass\n", _PORTS),
    rare("tls-files-once", "new certificates wait for a restart", _TLS,
         "            if seen == self._seen:\n", "            if True:\n", _FILES),
    rare("tls-listener-keeps-its-authority", "an authority that was taken out is trusted until a restart", _TLS,
         "        context.sni_callback = self._choose\n", "", _FILES),
    rare("tls-takes-what-peers-refuse", "a process takes a certificate that nobody accepts, and is cut off", _TLS,
         "            if role in SERVER_ROLES:\n", "            if False:\n", _FILES),
    rare("tls-takes-another-role", "a wrong file makes a server of a client's certificate", _TLS,
         "            if role is not before:\n", "            if False:\n", _FILES),
    rare("tls-starts-with-what-peers-refuse", "a server starts, is healthy, and nobody can reach it", _TLS,
         "        certificate = rehearse(config.cert, config.key, config.ca, as_server=True)\n",
         "        certificate = own_certificate(config.cert, config.key)\n", _FILES)
    .and_also(_TLS, "        rehearse(config.cert, config.key, config.ca, as_server=False)\n", ""),
    rare("tls-waits-for-ever", "a silent connection holds its place", _PEERS,
         '"ssl_handshake_timeout": HANDSHAKE_TIMEOUT_S', '"ssl_handshake_timeout": 60.0', _PORTS),
    rare("tls-not-backdated", "a clock that is a minute behind refuses a new certificate", "rangelog_cli.certs.making",
         "        .not_valid_before(now - BACKDATED)\n", "        .not_valid_before(now)\n", _FILES),
    rare("probe-believes-a-neighbour", "a healthy process at the same port keeps a dead one alive", "rangelog_cli.healthcheck",
         "    if own is not None and own.role in SERVER_ROLES and peer != own:\n", "    if False:\n",
         "cli/test_healthcheck.py"),
    rare("probe-takes-any-answer", "a process that says 503 is ready", "rangelog_cli.healthcheck",
         "    if not head.startswith(_OK):\n", "    if not head:\n", "cli/test_healthcheck.py"),
    rare("stops-without-a-yes", "a pod that is to stop asks once, and stops whatever the answer is", "pdctl.server_waiting",
         "            if found.safe or time.monotonic() >= end_s:\n", "            if True:\n",
         "pdctl/test_pdctl_impact_waiting.py"),
    rare("impact-for-everybody", "a client learns the names of streams that are not its own",
         "rangelog_pd.handlers.operations", "check_impact, frozenset({Role.PD, Role.RANGE_SERVER, Role.ADMIN})",
         "check_impact, frozenset(Role)", _NAMES),
    rare("lead-moved-by-everybody", "a client moves the lead of the placement drivers about",
         "rangelog_pd.handlers.members", "frozenset({Role.PD, Role.ADMIN})", "frozenset(Role)", _NAMES),
)  # fmt: skip
