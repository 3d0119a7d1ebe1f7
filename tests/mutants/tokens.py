"""Wrong choices about tokens and the calls that carry them: what is checked, what tokens are bound to, who comes in by one."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_VERIFIER = "rangelog_server_common.tokens.verifier"
_ADMISSION = "rangelog_server_common.tokens.admission"
_OIDC = "rangelog_server_common.tokens.oidc"
_SOURCES = "rangelog_core.net.token_sources"
_STATE = "rangelog_pd.state.tokens"
_TABLES = "rangelog_pd.state.token_tables"
_CHECKED, _OTHERS, _PORTS = (
    "server_common/test_token_verifier.py",
    "server_common/test_oidc.py",
    "tls/test_token_ports.py",
)
_CLIENT, _PD = "core/net/test_token_sources.py", "pd/state/test_pd_tokens.py"

TOKENS: tuple[Mutant, ...] = (
    rare("tokens-never-expire", "a token counts for ever", _VERIFIER,
         "        if self._wall_s() >= principal.ends_s + CLOCK_SKEW_S:\n", "        if False:\n", _CHECKED),
    rare("tokens-without-skew", "a clock that is a minute off locks everybody out", _VERIFIER,
         "        if self._wall_s() < begins_s - CLOCK_SKEW_S:\n", "        if self._wall_s() < begins_s:\n", _CHECKED),
    rare("tokens-skew-unlimited", "a token counts long before it begins", _VERIFIER,
         "        if self._wall_s() < begins_s - CLOCK_SKEW_S:\n", "        if False:\n", _CHECKED),
    rare("tokens-of-any-cluster", "the token of a test cluster opens production", _VERIFIER,
         "        if unproved.get(\"aud\") != trust.cluster_id:\n", "        if False:\n", _CHECKED),
    rare("tokens-revoked-taken", "a revoked token counts until it expires", _VERIFIER,
         "        if principal.token_id in trust.revoked:\n", "        if False:\n", _CHECKED),
    rare("tokens-known-unchecked", "an accepted token is not looked at again", _VERIFIER,
         "        self.check(known[0])\n        return known[0]\n", "        return known[0]\n", _CHECKED),
    rare("tokens-keys-for-ever", "a key that is trusted no longer goes on signing", _VERIFIER,
         "        if principal.key_id not in trust.keys:\n", "        if False:\n", _CHECKED),
    rare("tokens-any-algorithm", "the header chooses what is proved", _VERIFIER,
         "        if header.get(\"alg\") != ALGORITHM or header.get(\"typ\") != TOKEN_TYPE:\n",
         "        if False:\n", _CHECKED),
    rare("tokens-unsigned", "what a token says is believed before its signature is looked at", _VERIFIER,
         "            claims = jwt.decode(text, _public(key), algorithms=[ALGORITHM]).claims\n",
         "            claims = dict(unproved)\n", _CHECKED),
    rare("tokens-bounds-ignored", "a token that is bound to one stream opens all of its client's", _VERIFIER,
         "    if \"only\" not in claims:\n", "    if True:\n", _CHECKED),
    rare("tokens-bounds-unread", "bounds that cannot be read count as none", _VERIFIER,
         "        raise _refused(\"what it is bound to cannot be read\") from None\n", "        return None\n", _CHECKED),
    rare("tokens-of-any-role", "a token for admin:a is one for client:admin:a", _VERIFIER,
         "        if isinstance(subject, str) and subject.startswith(CLIENT_START):\n",
         "        if isinstance(subject, str):\n", _CHECKED),
    rare("tokens-unlimited", "a megabyte is decoded and parsed before it is refused", _VERIFIER,
         "        if len(text) > TEXT_LENGTH_MAX:\n", "        if False:\n", _CHECKED),
    rare("tokens-cut-by-chance", "gRPC refuses one call of twenty of who has a long token", "rangelog_core.net.grpc_options",
         "    (\"grpc.max_metadata_size\", 16 * KIB),", "    ", "server_common/test_grpc_server.py"),
    rare("channels-hasty", "who is slow to shake hands counts as not there", "rangelog_core.net.grpc_options",
         "    (\"grpc.min_reconnect_backoff_ms\", 500),", "    (\"grpc.min_reconnect_backoff_ms\", 100),",
         "server_common/test_grpc_server.py"),
    rare("tokens-signed-too-long", "a token is given out that no process takes", "rangelog_pd.handlers.tokens",
         "    if length > TEXT_LENGTH_MAX:\n", "    if False:\n", "pd/handlers/test_pd_token_calls.py"),
    rare("traces-endless", "a long tracestate makes each call too long", "rangelog_core.tracing",
         " if len(each[1]) <= CONTEXT_LENGTH_MAX))\n", "))\n", "core/test_tracing.py"),
    rare("tokens-not-needed", "who has neither certificate nor token is served", _ADMISSION,
         "    if needs_token:\n", "    if False:\n", _PORTS),
    rare("tokens-before-certificates", "an administrator with a client's token is a client", _ADMISSION,
         "        return certificate or found\n", "        return found\n", _CHECKED),
    rare("tokens-secret-names-somebody", "the shared secret stands for a certificate", _ADMISSION,
         "    if needs_token:\n", "    if needs_token and not shares:\n", _CHECKED),
    rare("tokens-on-any-port", "a token opens ports that are not for clients", _ADMISSION,
         "        check_port(found, port)\n", "", _CHECKED),
    rare("tokens-in-the-clear", "a token goes to another machine without encryption", _SOURCES,
         "    if tls is None and is_signed(text) and not _is_near(address) and", "    if False and", _CLIENT),
    rare("tokens-read-once", "the next token waits for a restart", _SOURCES,
         "            if kept is not None and kept[0] == seen:\n", "            if kept is not None:\n", _CLIENT),
    rare("tokens-revoked-in-secret", "servers do not hear of a revocation", _STATE,
         "        state.tokens.version += 1\n", "        pass\n", _PD),
    rare("tokens-revocations-forgotten", "a snapshot forgets what was revoked", _TABLES,
         "            if after.revoked_ms:\n", "            if False:\n", _PD),
    rare("oidc-audience-ignored", "a token for another application opens the cluster", _OIDC,
         "            self._audience not in (audience if isinstance(audience, list) else [audience])\n            or ",
         "            ", _OTHERS),
    rare("oidc-hmac-taken", "who knows the public key signs with it as a secret", _OIDC,
         "        if not isinstance(algorithm, str) or algorithm not in KINDS:\n", "        if algorithm is None:\n", _OTHERS),
    rare("oidc-never-expires", "a token of the issuer counts for ever", _OIDC,
         "        if now_s >= ends_s + CLOCK_SKEW_S:\n", "        if False:\n", _OTHERS)
    .and_also(_OIDC, "), ends_s\n", "), math.inf\n"),
    rare("oidc-no-prefix", "whoever is called as a certificate has that one's rights", _OIDC,
         "f\"{self._prefix}{SUBJECT_SEPARATOR}{subject}\"", "subject", _OTHERS),
    rare("oidc-small-keys", "a key that can be broken counts", _OIDC,
         "        return found if found.public_key.key_size >= RSA_BITS_MIN else None\n", "        return found\n", _OTHERS),
)  # fmt: skip
