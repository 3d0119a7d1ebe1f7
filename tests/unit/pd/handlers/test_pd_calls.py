"""Each method of each service has a row, and its request names it."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pool, message_factory

from rangelog_core.errors import InternalError
from rangelog_core.net.routes import Route, route_of
from rangelog_pd.handlers import service
from rangelog_proto.v1 import pd_pb2


@pytest.mark.parametrize("of", service.SERVICES, ids=lambda each: each.name)
def test_every_method_has_a_row(of: service.Service) -> None:
    """One without is unimplemented, and one that the service does not have is never called."""
    described = descriptor_pool.Default().FindServiceByName(of.full_name)
    assert sorted(call.name for call in of.calls) == sorted(method.name for method in described.methods)
    assert all(hasattr(of.module, f"{of.name}{suffix}") for suffix in ("Servicer", "Stub"))


@pytest.mark.parametrize("of", service.SERVICES, ids=lambda each: each.name)
def test_a_request_names_its_call(of: service.Service) -> None:
    """Two calls with one type of request could not be told apart."""
    for method in descriptor_pool.Default().FindServiceByName(of.full_name).methods:
        request = message_factory.GetMessageClass(method.input_type)
        assert route_of(request) == Route(of.full_name, method.name)
        assert route_of(request).path == f"/{of.full_name}/{method.name}"


def test_what_is_no_request_has_no_route() -> None:
    """A response by mistake."""
    with pytest.raises(InternalError, match="no call takes a ListServersResponse"):
        route_of(pd_pb2.ListServersResponse)


def test_a_caller_field_is_a_field() -> None:
    """Else a server could speak for another one."""
    for each in service.SERVICES:
        methods = descriptor_pool.Default().FindServiceByName(each.full_name).methods_by_name
        for call in each.calls:
            fields = methods[call.name].input_type.fields_by_name
            assert not call.caller_field or call.caller_field in fields, call.name
