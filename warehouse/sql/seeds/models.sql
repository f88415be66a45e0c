-- Model architectures, from their published configurations.
-- grain: hf_id
-- units: parameters; positions in tokens
-- kept: table
-- A diffusion transformer has two kinds of layers and its "19 double + 38 single" is no number.
select
    hf_id,
    family,
    model_type,
    try_cast(params_total as bigint) as params_total,
    try_cast(params_active as bigint) as params_active,
    try_cast(hidden_size as integer) as hidden_size,
    try_cast(num_hidden_layers as integer) as num_hidden_layers,
    try_cast(num_attention_heads as integer) as num_attention_heads,
    try_cast(num_key_value_heads as integer) as num_key_value_heads,
    try_cast(head_dim as integer) as head_dim,
    try_cast(intermediate_size as integer) as intermediate_size,
    try_cast(vocab_size as integer) as vocab_size,
    tie_word_embeddings = 'true' as tie_word_embeddings,
    try_cast(num_experts as integer) as num_experts,
    try_cast(experts_per_token as integer) as experts_per_token,
    try_cast(max_position as integer) as max_position,
    torch_dtype,
    source
from temp.raw_models
