"""Owns the memory of records seen in one file; its promise: about 20 bytes a record."""

BUCKETS = 1 << 16
DIGEST_BYTES = 16


class SeenRecords:
    """A set of source hashes, of which only the first 16 bytes are kept.

    Digests lie end to end in short byte strings: a set of objects would take four times the memory,
    which counts at a million rows.
    """

    def __init__(self) -> None:
        self._buckets = [b""] * BUCKETS

    def add(self, source_hash: str) -> bool:
        """Remember the record; tell if it is new."""
        digest = bytes.fromhex(source_hash)[:DIGEST_BYTES]
        index = int.from_bytes(digest[:2], "big")
        bucket = self._buckets[index]
        at = bucket.find(digest)
        while at >= 0:
            if at % DIGEST_BYTES == 0:
                return False
            # A match across two neighbours is none.
            at = bucket.find(digest, at + 1)
        self._buckets[index] = bucket + digest
        return True
