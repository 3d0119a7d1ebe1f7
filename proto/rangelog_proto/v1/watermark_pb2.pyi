from rangelog_proto.v1 import group_pb2 as _group_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WatermarkCommand(_message.Message):
    __slots__ = ("topic_id", "note", "end", "shards", "compute", "forget")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    note: TimeNote
    end: TimeNoteEnd
    shards: WatermarkShards
    compute: WatermarkCompute
    forget: WatermarkForget
    def __init__(self, topic_id: _Optional[int] = ..., note: _Optional[_Union[TimeNote, _Mapping]] = ..., end: _Optional[_Union[TimeNoteEnd, _Mapping]] = ..., shards: _Optional[_Union[WatermarkShards, _Mapping]] = ..., compute: _Optional[_Union[WatermarkCompute, _Mapping]] = ..., forget: _Optional[_Union[WatermarkForget, _Mapping]] = ...) -> None: ...

class NotedPosition(_message.Message):
    __slots__ = ("shard_id", "offset")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    offset: int
    def __init__(self, shard_id: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class TimeNote(_message.Message):
    __slots__ = ("producer_id", "producer_epoch", "number", "time_ms", "positions")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    number: int
    time_ms: int
    positions: _containers.RepeatedCompositeFieldContainer[NotedPosition]
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., number: _Optional[int] = ..., time_ms: _Optional[int] = ..., positions: _Optional[_Iterable[_Union[NotedPosition, _Mapping]]] = ...) -> None: ...

class TimeNoteEnd(_message.Message):
    __slots__ = ("producer_id", "producer_epoch", "number")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    number: int
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class WatermarkShards(_message.Message):
    __slots__ = ("map_version", "shards")
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    map_version: int
    shards: _containers.RepeatedCompositeFieldContainer[_group_pb2.GroupShardFacts]
    def __init__(self, map_version: _Optional[int] = ..., shards: _Optional[_Iterable[_Union[_group_pb2.GroupShardFacts, _Mapping]]] = ...) -> None: ...

class WatermarkCompute(_message.Message):
    __slots__ = ("expiry_ms", "opened_ms")
    EXPIRY_MS_FIELD_NUMBER: _ClassVar[int]
    OPENED_MS_FIELD_NUMBER: _ClassVar[int]
    expiry_ms: int
    opened_ms: int
    def __init__(self, expiry_ms: _Optional[int] = ..., opened_ms: _Optional[int] = ...) -> None: ...

class WatermarkForget(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Watermark(_message.Message):
    __slots__ = ("number", "lower_ms", "upper_ms", "cut")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LOWER_MS_FIELD_NUMBER: _ClassVar[int]
    UPPER_MS_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    number: int
    lower_ms: int
    upper_ms: int
    cut: _containers.RepeatedCompositeFieldContainer[NotedPosition]
    def __init__(self, number: _Optional[int] = ..., lower_ms: _Optional[int] = ..., upper_ms: _Optional[int] = ..., cut: _Optional[_Iterable[_Union[NotedPosition, _Mapping]]] = ...) -> None: ...

class WatermarkTopicState(_message.Message):
    __slots__ = ("topic_id", "map_version", "noted", "next_number", "shards", "producers", "reached", "watermarks")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    NOTED_FIELD_NUMBER: _ClassVar[int]
    NEXT_NUMBER_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    WATERMARKS_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    map_version: int
    noted: bool
    next_number: int
    shards: _containers.RepeatedCompositeFieldContainer[_group_pb2.GroupShardFacts]
    producers: _containers.RepeatedCompositeFieldContainer[NotingProducer]
    reached: _containers.RepeatedCompositeFieldContainer[NotedPosition]
    watermarks: _containers.RepeatedCompositeFieldContainer[Watermark]
    def __init__(self, topic_id: _Optional[int] = ..., map_version: _Optional[int] = ..., noted: bool = ..., next_number: _Optional[int] = ..., shards: _Optional[_Iterable[_Union[_group_pb2.GroupShardFacts, _Mapping]]] = ..., producers: _Optional[_Iterable[_Union[NotingProducer, _Mapping]]] = ..., reached: _Optional[_Iterable[_Union[NotedPosition, _Mapping]]] = ..., watermarks: _Optional[_Iterable[_Union[Watermark, _Mapping]]] = ...) -> None: ...

class NotingProducer(_message.Message):
    __slots__ = ("producer_id", "producer_epoch", "number", "time_ms", "heard_ms", "ended")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    HEARD_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    number: int
    time_ms: int
    heard_ms: int
    ended: bool
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., number: _Optional[int] = ..., time_ms: _Optional[int] = ..., heard_ms: _Optional[int] = ..., ended: bool = ...) -> None: ...
