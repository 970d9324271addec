# A gRPC server that answers each call of each method, and clients that call it through a
# proxy. Prints what the clients saw as JSON: of each of five calls its status and the
# metadata of a failed one, and of a call with a retry policy its status and its seconds.
# Usage: grpc_client.py PORT_OF_SERVER PORT_OF_PROXY. Needs python3-grpcio.

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import grpc

RETRIES = {"methodConfig": [{
    "name": [{}],
    "retryPolicy": {
        "maxAttempts": 4,
        "initialBackoff": "0.01s",
        "maxBackoff": "0.02s",
        "backoffMultiplier": 1,
        "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
    },
}]}


class Handler(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request)


def call(channel):
    begin = time.monotonic()
    seen = {"status": "OK"}
    try:
        channel.unary_unary("/shop.Orders/Get")(b"order", timeout=20)
    except grpc.RpcError as error:
        seen = {"status": error.code().name, "details": error.details(),
                "metadata": dict(error.trailing_metadata())}
    seen["seconds"] = time.monotonic() - begin
    return seen


server = grpc.server(ThreadPoolExecutor(4), handlers=[Handler()])
server.add_insecure_port("127.0.0.1:" + sys.argv[1])
server.start()

proxy = "127.0.0.1:" + sys.argv[2]
plain = grpc.insecure_channel(proxy)
calls = [call(plain) for _ in range(5)]
retried = call(grpc.insecure_channel(proxy, options=[
    ("grpc.enable_retries", 1), ("grpc.service_config", json.dumps(RETRIES))]))
print(json.dumps({"calls": calls, "retried": retried}))
server.stop(0)
