# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The loops over the records of a batch, compiled: the functions of `rangelog_core.record_codec_pure`, with the same results.

What holds: no byte is read or written outside of a buffer, also when the columns were not checked or change meanwhile: each
part and each pair of offsets is compared with the sizes of the buffers, which stay exported while they are read. Optional;
for little-endian machines.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLong
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport INT64_MAX, INT64_MIN, UINT32_MAX, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

import google_crc32c

from rangelog_core.errors import ProtocolViolation
from rangelog_core.record import NO_HEADERS, Record

cdef extern from *:
    """
    /* A new tuple of the type of a named tuple with five fields. It takes the first, second and fourth over, NULL or not. */
    static PyObject *rangelog_record(PyTypeObject *type, PyObject *offset, PyObject *timestamp_ms, PyObject *key,
                                     PyObject *value, PyObject *headers) {
        PyObject *made = offset && timestamp_ms && value ? type->tp_alloc(type, 5) : NULL;
        if (!made) {
            Py_XDECREF(offset);
            Py_XDECREF(timestamp_ms);
            Py_XDECREF(value);
            return NULL;
        }
        Py_INCREF(key);
        Py_INCREF(headers);
        PyTuple_SET_ITEM(made, 0, offset);
        PyTuple_SET_ITEM(made, 1, timestamp_ms);
        PyTuple_SET_ITEM(made, 2, key);
        PyTuple_SET_ITEM(made, 3, value);
        PyTuple_SET_ITEM(made, 4, headers);
        return made;
    }
    #define RANGELOG_RECORD(type, offset, timestamp_ms, key, data, size, headers) \\
        rangelog_record((PyTypeObject *)(type), PyLong_FromLongLong(offset), PyLong_FromLongLong(timestamp_ms), key, \\
                        PyBytes_FromStringAndSize(data, size), headers)
    """
    object RANGELOG_RECORD(PyObject* type, int64_t offset, int64_t timestamp_ms, PyObject* key, const char* data,
                           Py_ssize_t size, PyObject* headers)

cdef object crc_of = google_crc32c.value
cdef enum:
    CRC_BYTES = 4


cdef class Pieces:
    """A column of bytes under its offsets; iterated over, the pieces [low, high)."""

    cdef Py_buffer data, ends
    cdef Py_ssize_t at, high

    def __cinit__(self, data, offsets, Py_ssize_t low, Py_ssize_t high):
        if low < high:  # otherwise there is nothing from 0 to 0
            self.at, self.high = low, high
        PyObject_GetBuffer(data, &self.data, PyBUF_SIMPLE)
        PyObject_GetBuffer(offsets, &self.ends, PyBUF_SIMPLE)
        if self.ends.itemsize != sizeof(uint32_t) or self.at < 0 or self.high >= self.ends.len // <Py_ssize_t> sizeof(uint32_t):
            raise ValueError(f"[{low}, {high}) is no part of the pieces")

    def __dealloc__(self):
        PyBuffer_Release(&self.ends)
        PyBuffer_Release(&self.data)

    def __iter__(self):
        return self

    def __next__(self):
        cdef Py_ssize_t at = self.at
        cdef const char* start
        cdef Py_ssize_t size
        if at >= self.high:
            raise StopIteration
        self.at = at + 1
        size = self.find(at, &start)
        return PyBytes_FromStringAndSize(start, size)

    cdef inline Py_ssize_t find(self, Py_ssize_t number, const char** start) except -1:
        """Return the size of a piece of this column, and where it starts."""
        cdef uint32_t low = (<const uint32_t*> self.ends.buf)[number]
        cdef uint32_t high = (<const uint32_t*> self.ends.buf)[number + 1]
        if low > high or high > self.data.len:
            raise ProtocolViolation("a record batch's offsets leave its column")
        start[0] = <const char*> self.data.buf + low
        return high - low


def cut(data, offsets, low, high):
    """As `record_codec_pure.cut`. Raises ValueError where [low, high) is no part of the column."""
    return Pieces(data, offsets, low, high)


cdef class Records:
    """The records [low, high) of opened columns."""

    cdef Pieces values, keys
    cdef Py_buffer stamps, validity
    cdef object record_type, headers
    cdef int64_t base
    cdef Py_ssize_t at, high

    def __cinit__(self, columns, headers, Py_ssize_t low, Py_ssize_t high):
        self.record_type = Record
        self.headers = headers
        self.base = columns.header.base_offset
        if low < high:  # otherwise there is nothing from 0 to 0
            self.at, self.high = low, high
        self.values = Pieces(columns.values, columns.value_offsets, low, high)
        PyObject_GetBuffer(columns.timestamps_ms, &self.stamps, PyBUF_SIMPLE)
        if self.stamps.itemsize != sizeof(int64_t) or self.high > self.stamps.len // <Py_ssize_t> sizeof(int64_t):
            raise ValueError(f"[{low}, {high}) is no part of the timestamps")
        if columns.key_offsets is not None:
            self.keys = Pieces(columns.keys, columns.key_offsets, low, high)
            PyObject_GetBuffer(columns.key_validity, &self.validity, PyBUF_SIMPLE)
            if self.high > 8 * self.validity.len:
                raise ValueError(f"[{low}, {high}) is no part of the keys")

    def __dealloc__(self):
        PyBuffer_Release(&self.stamps)
        PyBuffer_Release(&self.validity)

    def __iter__(self):
        return self

    def __next__(self):
        cdef Py_ssize_t at = self.at
        cdef const char* start
        cdef Py_ssize_t size
        cdef object key = None
        cdef object headers = NO_HEADERS
        if at >= self.high:
            raise StopIteration
        self.at = at + 1
        if self.keys is not None and (<const uint8_t*> self.validity.buf)[at >> 3] >> (at & 7) & 1:
            size = self.keys.find(at, &start)
            key = PyBytes_FromStringAndSize(start, size)
        if self.headers is not None:
            headers = next(self.headers)
        size = self.values.find(at, &start)
        return RANGELOG_RECORD(<PyObject*> self.record_type, self.base + at, (<const int64_t*> self.stamps.buf)[at],
                               <PyObject*> key, start, size, <PyObject*> headers)


def iterate_records(columns, headers, low, high):
    """As `record_codec_pure.iterate_records`. Raises ValueError where [low, high) is no part of the columns."""
    return Records(columns, headers, low, high)


def encode_timestamps(timestamps_ms):
    """As `record_codec_pure.encode_timestamps`."""
    cdef list stamps = timestamps_ms if type(timestamps_ms) is list else list(timestamps_ms)
    cdef Py_ssize_t count = len(stamps)
    cdef bytes column = PyBytes_FromStringAndSize(NULL, count * sizeof(int64_t))
    cdef int64_t* out = <int64_t*> PyBytes_AS_STRING(column)
    cdef int64_t low = INT64_MAX
    cdef int64_t high = INT64_MIN
    cdef int64_t stamp
    cdef Py_ssize_t at
    if count == 0:
        raise IndexError("no timestamps")
    for at in range(count):
        if at >= len(stamps):  # the conversion of a number ran code that made the list shorter
            raise RuntimeError("the timestamps changed while they were encoded")
        stamp = PyLong_AsLongLong(stamps[at])
        out[at] = stamp
        low = min(low, stamp)
        high = max(high, stamp)
    return column, low, high


def encode_offsets(pieces):
    """As `record_codec_pure.encode_offsets`."""
    cdef Py_ssize_t count = len(pieces)
    cdef bytes column = PyBytes_FromStringAndSize(NULL, (count + 1) * sizeof(uint32_t))
    cdef uint32_t* out = <uint32_t*> PyBytes_AS_STRING(column)
    cdef Py_ssize_t end = 0
    cdef Py_ssize_t at = 0
    out[0] = 0
    for piece in pieces:
        end += PyBytes_GET_SIZE(piece) if PyBytes_CheckExact(piece) else len(piece)
        at += 1
        if at > count:
            raise RuntimeError("the pieces changed while they were encoded")
        if end > UINT32_MAX:
            raise OverflowError("pieces of more than 4 GiB")
        out[at] = <uint32_t> end
    if at != count:
        raise RuntimeError("the pieces changed while they were encoded")
    return column, end


def seal(pieces):
    """As `record_codec_pure.seal`, with one copy: the checksum is put in place of zeroes."""
    cdef bytes whole = b"".join([*pieces, bytes(CRC_BYTES)])  # two objects at least: new, and nobody else has it
    cdef uint32_t polynomial = 0x82F63B78
    cdef uint32_t crc = ~<uint32_t> crc_of(whole)
    cdef int step
    for step in range(8 * CRC_BYTES):  # take back the four zeroes, bit by bit
        crc = ((crc ^ polynomial) << 1) | 1 if crc >> 31 else crc << 1
    crc = ~crc
    memcpy(PyBytes_AS_STRING(whole) + PyBytes_GET_SIZE(whole) - CRC_BYTES, &crc, CRC_BYTES)
    return whole
