# A collector of OpenTelemetry: prints the attributes of each span that it is sent, as JSON
# on one line. The first line says that it listens.
# Usage: otel_collector.py PORT. Needs python3-grpcio and python3-opentelemetry-proto.

import json
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    def Export(self, request, context):
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    print(json.dumps({
                        attribute.key: attribute.value.string_value
                        or attribute.value.int_value
                        for attribute in span.attributes}), flush=True)
        return trace_service_pb2.ExportTraceServiceResponse()


server = grpc.server(ThreadPoolExecutor(1))
trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Collector(), server)
server.add_insecure_port("127.0.0.1:" + sys.argv[1])
server.start()
print("{}", flush=True)
signal.sigwait({signal.SIGTERM})
