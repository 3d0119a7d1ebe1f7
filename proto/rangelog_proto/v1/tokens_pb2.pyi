from rangelog_proto.v1 import rights_pb2 as _rights_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TokenRow(_message.Message):
    __slots__ = ("token_id", "name", "principal", "only", "created_ms", "expires_ms", "revoked_ms", "key_id")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    ONLY_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    REVOKED_MS_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    name: str
    principal: str
    only: _containers.RepeatedCompositeFieldContainer[_rights_pb2.AccessRule]
    created_ms: int
    expires_ms: int
    revoked_ms: int
    key_id: str
    def __init__(self, token_id: _Optional[str] = ..., name: _Optional[str] = ..., principal: _Optional[str] = ..., only: _Optional[_Iterable[_Union[_rights_pb2.AccessRule, _Mapping]]] = ..., created_ms: _Optional[int] = ..., expires_ms: _Optional[int] = ..., revoked_ms: _Optional[int] = ..., key_id: _Optional[str] = ...) -> None: ...

class TokenKey(_message.Message):
    __slots__ = ("key_id", "public_key", "last_expires_ms")
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    LAST_EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    key_id: str
    public_key: bytes
    last_expires_ms: int
    def __init__(self, key_id: _Optional[str] = ..., public_key: _Optional[bytes] = ..., last_expires_ms: _Optional[int] = ...) -> None: ...

class CreateTokenRequest(_message.Message):
    __slots__ = ("request_id", "name", "principal", "only", "lifetime_ms")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    ONLY_FIELD_NUMBER: _ClassVar[int]
    LIFETIME_MS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    principal: str
    only: _containers.RepeatedCompositeFieldContainer[_rights_pb2.AccessRule]
    lifetime_ms: int
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., principal: _Optional[str] = ..., only: _Optional[_Iterable[_Union[_rights_pb2.AccessRule, _Mapping]]] = ..., lifetime_ms: _Optional[int] = ...) -> None: ...

class CreateTokenResponse(_message.Message):
    __slots__ = ("row", "text")
    ROW_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    row: TokenRow
    text: str
    def __init__(self, row: _Optional[_Union[TokenRow, _Mapping]] = ..., text: _Optional[str] = ...) -> None: ...

class ListTokensRequest(_message.Message):
    __slots__ = ("name", "page_token", "page_size")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    name: str
    page_token: str
    page_size: int
    def __init__(self, name: _Optional[str] = ..., page_token: _Optional[str] = ..., page_size: _Optional[int] = ...) -> None: ...

class ListTokensResponse(_message.Message):
    __slots__ = ("rows", "next_page_token")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[TokenRow]
    next_page_token: str
    def __init__(self, rows: _Optional[_Iterable[_Union[TokenRow, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class RevokeTokenRequest(_message.Message):
    __slots__ = ("request_id", "name")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class RevokeTokenResponse(_message.Message):
    __slots__ = ("row",)
    ROW_FIELD_NUMBER: _ClassVar[int]
    row: TokenRow
    def __init__(self, row: _Optional[_Union[TokenRow, _Mapping]] = ...) -> None: ...

class GetTokenTrustRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetTokenTrustResponse(_message.Message):
    __slots__ = ("cluster_id", "version", "keys", "revoked_ids")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    REVOKED_IDS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    version: int
    keys: _containers.RepeatedCompositeFieldContainer[TokenKey]
    revoked_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cluster_id: _Optional[str] = ..., version: _Optional[int] = ..., keys: _Optional[_Iterable[_Union[TokenKey, _Mapping]]] = ..., revoked_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class PlacedCreateToken(_message.Message):
    __slots__ = ("row", "key")
    ROW_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    row: TokenRow
    key: TokenKey
    def __init__(self, row: _Optional[_Union[TokenRow, _Mapping]] = ..., key: _Optional[_Union[TokenKey, _Mapping]] = ...) -> None: ...
