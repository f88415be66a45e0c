-- Whether an offer stands at a moment: begun where it says when, and not yet ended.
-- units: UTC
-- kept: function(effective_at, expires_at, moment)
coalesce(expires_at > moment, true) and coalesce(effective_at <= moment, true)
