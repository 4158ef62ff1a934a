"""From arguments to Ray's application: one deployment, its router and its autoscaling. Runs where `serve run` does."""

from __future__ import annotations

import os
from typing import Any

import ray
from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, RequestRouterConfig

from pyggml_server.ray.arguments import Arguments, read_arguments
from pyggml_server.ray.replica import Replica

NAME = "server"
SESSION_ROUTER = "ray.serve.experimental.consistent_hash_router:ConsistentHashRouter"
PRESSURE_POLICY = "pyggml_server.ray.scaling:PoolPressure"
PROXY_VARIABLE = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"
PROXY_PATH = "pyggml_server.ray.proxy.middlewares"
DRAIN_LOOK_S = 0.5  # how often a replica that drains looks whether its last request has ended


def application(given: dict[str, Any]) -> Any:
    """The application. Raises ArgumentError.

    Ray's proxy is told of its middleware through the environment, which a cluster that runs already does not take:
    docs/scale.md says how to start such a cluster.
    """
    arguments = read_arguments(given)
    if not ray.is_initialized():
        os.environ.setdefault(PROXY_VARIABLE, PROXY_PATH)
    replica = serve.deployment(serve.ingress()(Replica))
    return replica.options(**_options(arguments)).bind(arguments.argv)


def _options(arguments: Arguments) -> dict[str, Any]:
    options: dict[str, Any] = {
        "name": NAME,
        "ray_actor_options": {"num_cpus": arguments.cpus, "num_gpus": arguments.gpus},
        "max_ongoing_requests": arguments.max_ongoing_requests,
        "graceful_shutdown_timeout_s": arguments.drain_s,
        "graceful_shutdown_wait_loop_s": DRAIN_LOOK_S,
    }
    if arguments.routing == "session":
        options["request_router_config"] = RequestRouterConfig(request_router_class=SESSION_ROUTER)
    if arguments.scales:
        options["autoscaling_config"] = AutoscalingConfig(
            min_replicas=arguments.replicas,
            max_replicas=arguments.max_replicas,
            upscale_delay_s=arguments.upscale_delay_s,
            downscale_delay_s=arguments.downscale_delay_s,
            policy=AutoscalingPolicy(
                policy_function=PRESSURE_POLICY, policy_kwargs={"target": arguments.target_pressure}
            ),
        )
    else:
        options["num_replicas"] = arguments.replicas
    return options
