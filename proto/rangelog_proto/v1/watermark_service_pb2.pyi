from rangelog_proto.v1 import watermark_pb2 as _watermark_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NoteTimeRequest(_message.Message):
    __slots__ = ("topic_id", "note")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    note: _watermark_pb2.TimeNote
    def __init__(self, topic_id: _Optional[int] = ..., note: _Optional[_Union[_watermark_pb2.TimeNote, _Mapping]] = ...) -> None: ...

class NoteTimeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EndTimeNotesRequest(_message.Message):
    __slots__ = ("topic_id", "end")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    end: _watermark_pb2.TimeNoteEnd
    def __init__(self, topic_id: _Optional[int] = ..., end: _Optional[_Union[_watermark_pb2.TimeNoteEnd, _Mapping]] = ...) -> None: ...

class EndTimeNotesResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListWatermarksRequest(_message.Message):
    __slots__ = ("topic_id", "after_number", "from_ms", "page_size")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_NUMBER_FIELD_NUMBER: _ClassVar[int]
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    after_number: int
    from_ms: int
    page_size: int
    def __init__(self, topic_id: _Optional[int] = ..., after_number: _Optional[int] = ..., from_ms: _Optional[int] = ..., page_size: _Optional[int] = ...) -> None: ...

class ListWatermarksResponse(_message.Message):
    __slots__ = ("watermarks", "more")
    WATERMARKS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    watermarks: _containers.RepeatedCompositeFieldContainer[_watermark_pb2.Watermark]
    more: bool
    def __init__(self, watermarks: _Optional[_Iterable[_Union[_watermark_pb2.Watermark, _Mapping]]] = ..., more: bool = ...) -> None: ...
