-- Hours on the bill: each start is lifted to its minimum, then rounded up to the increment.
-- units: hours; starts; seconds
-- kept: function(hours, starts, minimum_seconds, increment_seconds)
-- round() before ceil(): 3600.0000000001 seconds are one hour, not two.
starts * ceil(
    round(greatest(hours::double * 3600 / starts, minimum_seconds) / increment_seconds, 6)
) * increment_seconds / 3600.0::double
