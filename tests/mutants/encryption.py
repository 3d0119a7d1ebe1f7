"""Wrong choices about encrypted objects: what leaves in clear, which key counts, what a missing key is taken for."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_KEYS = "rangelog_tier.encryption_keys"
_CIPHER = "rangelog_tier.object_cipher"
_FILE = "rangelog_tier.encrypted_file"
_UPLOAD = "rangelog_server.tier.upload"
_HANDLERS = "rangelog_pd.handlers.objects"
_SNAPSHOTS = "rangelog_pd.tier_snapshots"
_OBJECTS_TEST = "client/tier/test_encrypted_objects.py"
_KEYS_TEST = "client/tier/test_encryption_keys.py"
_FILE_TEST = "client/tier/test_encrypted_file.py"
_UPLOAD_TEST = "range_server/tier/test_encrypted_uploads.py"
_PD_TEST = "pd/test_pd_encryption.py"

ENCRYPTION: tuple[Mutant, ...] = (
    rare(
        "object-in-clear",
        "an object whose key is listed is in clear all the same",
        "rangelog_tier.parquet",
        "        encryption_properties=encryption,\n",
        "        encryption_properties=None,\n",
        _OBJECTS_TEST,
    ),
    rare(
        "repack-in-clear",
        "what was encrypted is in clear once small objects are joined",
        "rangelog_tier.repacking",
        "        cipher=cipher_of(store),\n",
        "        cipher=None,\n",
        _OBJECTS_TEST,
    ),
    rare(
        "wrong-key-is-damage",
        "a key of another name is reported as a damaged object",
        _KEYS,
        "        if not hmac.compare_digest(_check(key), wrapped[:_CHECK_BYTES]):\n",
        "        if False:\n",
        _KEYS_TEST,
    ),
    rare(
        "missing-key-is-damage",
        "a reader without keys calls an object damaged",
        _CIPHER,
        "    if cipher is None:\n        raise EncryptionKeyMissing(",
        "    if cipher is None:\n        raise Corruption(",
        _OBJECTS_TEST,
    ),
    rare(
        "key-of-everybody",
        "a key that all users of a machine may read is used",
        _KEYS,
        "        if is_open_to_others(told):\n",
        "        if False:\n",
        _KEYS_TEST,
    ),
    rare(
        "new-key-at-once",
        "a key is used by one server before the others have it",
        _KEYS,
        "        if (chosen := self._chosen()) is not None:\n            return chosen\n",
        "",
        "pdctl/test_pdctl_encryption.py",
    ),
    rare(
        "upload-without-asking",
        "earlier placement drivers forget which objects are encrypted",
        _UPLOAD,
        "            await check_cluster_encrypts(self._pd, timeout_s=PD_TIMEOUT_S)\n",
        "",
        _UPLOAD_TEST,
    ),
    rare(
        "prepared-without-a-key",
        "a range that has no key keeps others from uploading it",
        _UPLOAD,
        "        await self._run(cipher.check_key)\n",
        "",
        _UPLOAD_TEST,
    ),
    rare(
        "retry-is-damage",
        "a server that ended at the wrong moment reports damage",
        "rangelog_tier.storing",
        "    if taken and written.encryption_key_id:\n",
        "    if False:\n",
        _UPLOAD_TEST,
    ),
    rare(
        "clear-beside-encrypted",
        "a range server without keys uploads in clear",
        _HANDLERS,
        "        if driver.encryption_keys is not None:\n",
        "        if False:\n",
        _PD_TEST,
    ),
    rare(
        "encrypted-for-old-servers",
        "a server of an earlier release calls objects damaged",
        _HANDLERS,
        '    if name is not None:\n        raise PreconditionFailed(\n            f"range server {name} is of',
        '    if False:\n        raise PreconditionFailed(\n            f"range server {name} is of',
        _PD_TEST,
    ),
    rare(
        "old-clients-are-told",
        "a client of an earlier release calls objects damaged",
        _HANDLERS,
        "        if not request.knows_encryption and any(",
        "        if False and any(",
        _PD_TEST,
    ),
    rare(
        "snapshot-in-clear",
        "a snapshot names all streams, in a bucket that is not to be trusted",
        _SNAPSHOTS,
        "    if keys is None and state.range_objects.encrypted_count:\n",
        "    if False:\n",
        _PD_TEST,
    ),
    rare(
        "encrypted-file-cut",
        "a snapshot that was cut at a piece is taken for a whole one",
        _FILE,
        "            whole.write(cipher.decrypt(_NONCE.pack(number, last), data[begin : begin + step], head))\n",
        "            whole.write(cipher.decrypt(_NONCE.pack(number, False), data[begin : begin + step], head))\n",
        _FILE_TEST,
    ).and_also(_FILE, "_NONCE.pack(number, not following), piece, head", "_NONCE.pack(number, False), piece, head"),
    rare(
        "manifest-of-the-encrypted",
        "a stream's name and times are in the bucket",
        "rangelog_server.tier.manifests",
        "        return found if found.objects and not found.is_encrypted else None\n",
        "        return found if found.objects else None\n",
        "range_server/tier/test_manifest_upkeep.py",
    ),
    rare(
        "restore-without-the-id",
        "after a restore nobody knows which key an object needs",
        "rangelog_tier.restore.describing",
        "        found.encryption_key_id = key_id_of(tail[len(tail) - footer_size :])\n",
        "        pass\n",
        _OBJECTS_TEST,
    ),
)
