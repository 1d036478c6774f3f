from tritonclient.grpc import model_config_pb2, service_pb2

from serving.messages.open_inference import CLASSES


def fields(descriptor):
    return {
        one.number: (one.name, one.type, one.is_repeated, {"values": dict(enum(one))} if one.enum_type else None)
        for one in descriptor.fields
    }


def enum(field):
    return ((value.name, value.number) for value in field.enum_type.values)


def nested(descriptor):
    return {descriptor.name: descriptor} | {
        name: one for inner in descriptor.nested_types for name, one in nested(inner).items()
    }


def test_every_field_is_that_of_the_published_message():
    published = {}
    for file in (service_pb2.DESCRIPTOR, model_config_pb2.DESCRIPTOR):
        for descriptor in file.message_types_by_name.values():
            published |= {name: one for name, one in nested(descriptor).items() if not name.endswith("Entry")}
    for name, ours in CLASSES.items():
        found, real = fields(ours.DESCRIPTOR), fields(published[name])
        for number, (field, kind, repeated, values) in found.items():
            assert (field, kind, repeated) == real[number][:3], name
            if values:
                assert values["values"].items() <= real[number][3]["values"].items()
