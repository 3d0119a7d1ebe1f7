"""Wrong choices about the tier: errors of the store, its comparison with the state, and repairs."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, rare

_ERRORS = "rangelog_tier.s3_errors"
_SCRUB = "rangelog_tier.scrubbing"
_STATE = "rangelog_pd.state.reuploads"
_SCRUB_TEST = "pdctl/test_pdctl_scrub.py"
_ERRORS_TEST = "client/tier/test_s3_errors.py"
_INCOMPLETE_TEST = "client/tier/test_incomplete_answers.py"


def _tier(name: str, harm: str, module: str, old: str, new: str) -> Mutant:
    """Caught by the seeds in which the tier gets other stores under load (virtual_tier.py)."""
    return Mutant(name, harm, (Edit(module, old, new),), first_seed=3, every=5)


def _scrubbed(name: str, harm: str, old: str, new: str, *more: Edit) -> Mutant:
    """Caught by the seeds in which the tier is scrubbed under load, and harmed (virtual_scrubbing.py)."""
    return Mutant(name, harm, (Edit(_SCRUB, old, new), *more), first_seed=3, every=12)


TIER: tuple[Mutant, ...] = (
    rare("listing-ends-without-a-token", "half of a listing is taken for all of it: a scrub uploads again, a restore cuts",
         "rangelog_tier.s3_store", "                if not page.get(\"IsTruncated\", bool(token)):\n",
         "                if not token:\n", _INCOMPLETE_TEST),
    rare("short-answer-is-damage", "an object is given up because a proxy cut an answer short",
         "rangelog_tier.s3_spans", "    if size < start + length:\n", "    if count < length:\n", _INCOMPLETE_TEST),
    rare("any-span-will-do", "other bytes of an object than were asked for are taken for damage",
         "rangelog_tier.s3_spans", "    if (first, count) != (start, length):\n", "    if count != length:\n",
         _INCOMPLETE_TEST),
    rare("part-is-whole", "a part of a snapshot is taken for a damaged one, and an earlier one is restored",
         "rangelog_tier.s3_store", "                if is_partial(answer):\n", "                if False:\n",
         _INCOMPLETE_TEST),
    rare("unreadable-folder-is-empty", "objects in a folder that may not be read are missing", "rangelog_tier.file_store",
         "        if not isinstance(error, FileNotFoundError):  # removed meanwhile\n", "        if False:\n",
         _INCOMPLETE_TEST),
    rare("list-breaks-off", "a list that breaks off is taken for all of it", "rangelog_core.net.pages",
         "    if more and not len(rows):\n", "    if more and not len(rows):\n        return False\n    if False:\n",
         "core/net/test_pages.py"),
    rare("list-is-its-first-page", "what is not on the first page of a list is not there", "rangelog_core.net.pages",
         "        if not request.page_token:\n            return\n", "        return\n", "core/net/test_pages.py"),
    rare("tier-path-unquoted", "a cluster in a directory with a % or a blank in its name has its objects elsewhere, or nowhere",
         "rangelog_cli.local.processes", "(directory / \"tier\").as_uri() if", "f\"file://{directory / 'tier'}\" if",
         "cli/local/test_cli_processes.py"),
    rare("secret-path-unquoted", "a name with a slash asks the API server for another thing than a Secret",
         "rangelog_cli.certs.kubernetes_api", "{quote(name, safe='')}", "{name}", "cli/certs/test_kept_secrets.py"),
    _scrubbed("scrub-removes-uploads-under-load", "an object is removed while it is being uploaded, and committed",
              "        rows = {each.object_id: each for each in answer.objects}\n",
              "        rows = {each.object_id: each for each in answer.objects if each.state != _PREPARED}\n",
              Edit(_SCRUB, "            if each.object_id in known:\n", "            if False:\n")),
    _scrubbed("scrub-calls-trimmed-missing-under-load", "what the state gave up meanwhile is reported as missing",
              "        for row in await self._still_committed(gone):\n", "        for row in gone:\n"),
    _scrubbed("scrub-leaves-what-is-damaged", "a damaged object stays, until its hot copies are dropped",
              "        elif self._verify:\n", "        elif False:\n"),
    rare("upload-to-the-former-store-under-load", "an object is committed that is where no reader looks for it",
         "rangelog_server.tier.upload",
         "        check_has_store(self._url, prepared.tier_id)\n", "",
         "range_server/tier/test_upload_to_stores.py"),
    _tier("all-objects-are-in-the-last-store", "what is in a former store cannot be read any more",
          "rangelog_tier.routed_store",
          "        return self._open(store_of_key(self._stores, key))\n", "        return self._open(self._stores[-1])\n"),
    _tier("prepared-before-counts-as-after", "an object that was prepared before a change is looked for in the new store",
          "rangelog_pd.state.tier_stores",
          "        first_object_id=state.next_object_id, url=request.url,",
          "        first_object_id=max(1, state.next_object_id - 3), url=request.url,"),
    rare("denied-is-missing", "an object that may not be read counts as missing", _ERRORS,
         '    if code == "NoSuchKey":\n', '    if code in ("NoSuchKey", "AccessDenied", "403"):\n', _ERRORS_TEST),
    rare("any-404-is-missing", "the page of a web server that is no S3 counts as a missing object", _ERRORS,
         '    if code == "NoSuchKey":\n', '    if code in ("NoSuchKey", "404"):\n', _ERRORS_TEST),
    rare("reader-makes-a-bucket", "who only reads makes the bucket of its own mistake", "rangelog_tier.opening",
         '            create=create and options.get("create") == "true",\n',
         '            create=options.get("create") == "true",\n', _ERRORS_TEST),
    rare("scrub-without-grace", "an object of an upload that has just ended is removed", _SCRUB,
         "            elif not info.stored_ms or answer.time_ms - info.stored_ms < self._grace_ms:\n",
         "            elif False:\n", _SCRUB_TEST),
    rare("scrub-removes-what-is-prepared", "an object is removed while it is being uploaded", _SCRUB,
         "        rows = {each.object_id: each for each in answer.objects}\n",
         "        rows = {each.object_id: each for each in answer.objects if each.state != _PREPARED}\n", _SCRUB_TEST)
    .and_also(_SCRUB, "            if each.object_id in known:\n", "            if False:\n"),
    rare("scrub-with-one-look", "an object that the state has again is removed", _SCRUB,
         "            if each.object_id in known:\n", "            if False:\n", _SCRUB_TEST),
    rare("scrub-of-the-foreign", "objects of another cluster, or of a later state, are removed", _SCRUB,
         "            elif row is not None or not 0 < object_id < answer.next_object_id:\n",
         "            elif row is not None or not object_id:\n", _SCRUB_TEST),
    rare("scrub-believes-the-listing", "what was trimmed meanwhile is reported as missing", _SCRUB,
         "        for row in await self._still_committed(gone):\n", "        for row in gone:\n", _SCRUB_TEST),
    rare("scrub-of-a-former-tier", "what a later store of the tier has is called missing, and given up", _SCRUB,
         "        if answer.tier_url and answer.tier_url != self._tier_url:  # empty: of an earlier program\n",
         "        if False:\n", _SCRUB_TEST),
    rare("reupload-without-hot-copies", "the last copy of records is given up", _STATE,
         "        if each.hot_dropped or not each.replicas:\n", "        if False:\n", "pd/state/test_pd_reuploads.py"),
    rare("reupload-on-a-list-of-replicas", "an object is given up for copies that nobody has", "rangelog_pd.handlers.tier",
         "        if not empty and not any(planner.is_whole(each, replica) for replica in each.replicas):\n",
         "        if not empty and not each.replicas:\n", "pd/handlers/test_pd_tier_calls.py"),
    rare("reupload-leaves-the-rest", "objects behind a given up one go on counting, beside those that follow", _STATE,
         "each.start_offset >= found.start_offset", "each.start_offset == found.start_offset",
         "pd/state/test_pd_reuploads.py"),
    rare("upload-to-the-former-store", "an object is stored where no reader looks for it", "rangelog_core.tier_stores",
         "    if tier_id > parse_tier(text)[-1].first_object_id:\n", "    if False:\n",
         "range_server/tier/test_upload_to_stores.py"),
    rare("upload-by-a-store-opened-before", "all uploads of a server go where no reader looks, until it is started again",
         "rangelog_server.tier.upload", "            if url == self._url:  #", "            if True:  #",
         "range_server/tier/test_upload_to_stores.py"),
    rare("repack-to-the-store-looked-at-first", "a repacked object is where no reader looks, and its sources are deleted",
         "rangelog_tier.repacking", "        check_has_store(self._tier_url, prepared.tier_id)\n", "",
         "range_server/agent/test_repack_directive.py"),
    rare("changes-share-a-number", "a server that missed a change of the tier does not find out",
         "rangelog_pd.state.tier_stores",
         "    state.next_object_id += 1  # no object has the number of a change\n", "",
         "pd/state/test_pd_tier_stores.py"),
    rare("reader-keeps-its-store", "a reader takes objects of a new store for missing", "rangelog._read.cold",
         "            self._fetcher = None  # or that is in a store which the tier got meanwhile\n", "",
         "client/read/test_cold_reader.py"),
)  # fmt: skip
