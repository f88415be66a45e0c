-- Who sells: the provider's name, kind and public price page.
-- grain: provider
-- units: none
-- kept: table
select
    provider,
    "name" as provider_name,
    pricing_url,
    kind as provider_kind,
    note
from temp.raw_providers
