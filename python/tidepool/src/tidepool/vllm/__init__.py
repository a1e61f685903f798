"""The connector between vLLM and a pool: what one engine has computed, any other engine of the same model loads.

Point vLLM at it by name and module path (docs/vllm.md has the settings)::

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "TidepoolConnector",
        "kv_connector_module_path": "tidepool.vllm", "kv_role": "kv_both",
        "kv_connector_extra_config": {"catalogs": ["10.0.0.1:7411"]}}'

Where things are: ``connector`` is vLLM's interface and nothing else; ``scheduler`` decides what is loaded and saved
(``pins`` holds blocks meanwhile), ``worker`` has it moved, ``messages`` is what they tell each other; ``fingerprint``
says whose blocks are interchangeable (``weights`` tells models apart), ``groups`` and ``layout`` describe KV groups and
their memory; ``settings``, ``metrics``, ``events`` and ``sessions`` are what users see.
"""

from .connector import TidepoolConnector

__all__ = ["TidepoolConnector"]
