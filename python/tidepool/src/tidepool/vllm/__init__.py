"""The connector between vLLM and a pool: any engine of a model loads the blocks that another one computed.

Point vLLM at it by name and module path (docs/vllm.md has the settings)::

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "TidepoolConnector",
        "kv_connector_module_path": "tidepool.vllm", "kv_role": "kv_both",
        "kv_connector_extra_config": {"catalogs": ["10.0.0.1:7411"]}}'

Modules: ``connector`` is vLLM's interface and nothing else; ``scheduler`` decides which blocks are loaded and saved
(``pins`` holds them meanwhile), ``worker`` moves them, ``messages`` has the messages between the two; ``fingerprint``
decides whose blocks are interchangeable (``weights`` tells models apart), ``groups`` and ``layout`` describe KV groups
and their memory; ``settings``, ``metrics``, ``events`` and ``sessions`` are the users' part.
"""

from .connector import TidepoolConnector

__all__ = ["TidepoolConnector"]
