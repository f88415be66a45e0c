-- Model architectures, from their published configurations.
-- grain: hf_id
-- units: parameters; positions in tokens
select * from seeds.models
