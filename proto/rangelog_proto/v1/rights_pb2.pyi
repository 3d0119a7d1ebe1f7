from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Verb(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERB_UNSPECIFIED: _ClassVar[Verb]
    VERB_APPEND: _ClassVar[Verb]
    VERB_READ: _ClassVar[Verb]
    VERB_SEAL: _ClassVar[Verb]
    VERB_TRIM: _ClassVar[Verb]
    VERB_ADMIN: _ClassVar[Verb]

class ResourceKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESOURCE_KIND_UNSPECIFIED: _ClassVar[ResourceKind]
    RESOURCE_KIND_STREAM: _ClassVar[ResourceKind]
    RESOURCE_KIND_TOPIC: _ClassVar[ResourceKind]
    RESOURCE_KIND_GROUP: _ClassVar[ResourceKind]
    RESOURCE_KIND_NAMESPACE: _ClassVar[ResourceKind]
    RESOURCE_KIND_TRANSACTION: _ClassVar[ResourceKind]
VERB_UNSPECIFIED: Verb
VERB_APPEND: Verb
VERB_READ: Verb
VERB_SEAL: Verb
VERB_TRIM: Verb
VERB_ADMIN: Verb
RESOURCE_KIND_UNSPECIFIED: ResourceKind
RESOURCE_KIND_STREAM: ResourceKind
RESOURCE_KIND_TOPIC: ResourceKind
RESOURCE_KIND_GROUP: ResourceKind
RESOURCE_KIND_NAMESPACE: ResourceKind
RESOURCE_KIND_TRANSACTION: ResourceKind

class AccessRule(_message.Message):
    __slots__ = ("principal", "kind", "name", "verbs")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERBS_FIELD_NUMBER: _ClassVar[int]
    principal: str
    kind: ResourceKind
    name: str
    verbs: _containers.RepeatedScalarFieldContainer[Verb]
    def __init__(self, principal: _Optional[str] = ..., kind: _Optional[_Union[ResourceKind, str]] = ..., name: _Optional[str] = ..., verbs: _Optional[_Iterable[_Union[Verb, str]]] = ...) -> None: ...

class GrantRightsRequest(_message.Message):
    __slots__ = ("request_id", "rule")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    rule: AccessRule
    def __init__(self, request_id: _Optional[str] = ..., rule: _Optional[_Union[AccessRule, _Mapping]] = ...) -> None: ...

class GrantRightsResponse(_message.Message):
    __slots__ = ("rule",)
    RULE_FIELD_NUMBER: _ClassVar[int]
    rule: AccessRule
    def __init__(self, rule: _Optional[_Union[AccessRule, _Mapping]] = ...) -> None: ...

class RevokeRightsRequest(_message.Message):
    __slots__ = ("request_id", "rule")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    rule: AccessRule
    def __init__(self, request_id: _Optional[str] = ..., rule: _Optional[_Union[AccessRule, _Mapping]] = ...) -> None: ...

class RevokeRightsResponse(_message.Message):
    __slots__ = ("rule",)
    RULE_FIELD_NUMBER: _ClassVar[int]
    rule: AccessRule
    def __init__(self, rule: _Optional[_Union[AccessRule, _Mapping]] = ...) -> None: ...

class ListRightsRequest(_message.Message):
    __slots__ = ("principal", "page_token", "page_size")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    principal: str
    page_token: str
    page_size: int
    def __init__(self, principal: _Optional[str] = ..., page_token: _Optional[str] = ..., page_size: _Optional[int] = ...) -> None: ...

class ListRightsResponse(_message.Message):
    __slots__ = ("rules", "next_page_token", "enforced")
    RULES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ENFORCED_FIELD_NUMBER: _ClassVar[int]
    rules: _containers.RepeatedCompositeFieldContainer[AccessRule]
    next_page_token: str
    enforced: bool
    def __init__(self, rules: _Optional[_Iterable[_Union[AccessRule, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., enforced: bool = ...) -> None: ...

class EnforceRightsRequest(_message.Message):
    __slots__ = ("request_id", "enforced")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ENFORCED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    enforced: bool
    def __init__(self, request_id: _Optional[str] = ..., enforced: bool = ...) -> None: ...

class EnforceRightsResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class AccessResource(_message.Message):
    __slots__ = ("kind", "name", "id")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    kind: ResourceKind
    name: str
    id: int
    def __init__(self, kind: _Optional[_Union[ResourceKind, str]] = ..., name: _Optional[str] = ..., id: _Optional[int] = ...) -> None: ...

class CheckRightsRequest(_message.Message):
    __slots__ = ("principal", "resources")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    principal: str
    resources: _containers.RepeatedCompositeFieldContainer[AccessResource]
    def __init__(self, principal: _Optional[str] = ..., resources: _Optional[_Iterable[_Union[AccessResource, _Mapping]]] = ...) -> None: ...

class CheckRightsResponse(_message.Message):
    __slots__ = ("grants", "version", "enforced")
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ENFORCED_FIELD_NUMBER: _ClassVar[int]
    grants: _containers.RepeatedCompositeFieldContainer[AccessGrant]
    version: int
    enforced: bool
    def __init__(self, grants: _Optional[_Iterable[_Union[AccessGrant, _Mapping]]] = ..., version: _Optional[int] = ..., enforced: bool = ...) -> None: ...

class AccessGrant(_message.Message):
    __slots__ = ("verbs", "resource")
    VERBS_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    verbs: _containers.RepeatedScalarFieldContainer[Verb]
    resource: AccessResource
    def __init__(self, verbs: _Optional[_Iterable[_Union[Verb, str]]] = ..., resource: _Optional[_Union[AccessResource, _Mapping]] = ...) -> None: ...
