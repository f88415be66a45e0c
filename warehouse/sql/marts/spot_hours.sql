-- Expected billed hours of interruptible work, with the work since the last checkpoint redone.
-- units: hours; interruptions per hour of running
-- kept: function(work_hours, interval_hours, save_hours, interruptions_per_hour, restart_hours)
-- Closed form for exponential gaps (Daly 2006): every segment of length s costs
-- (1/rate + restart) * (exp(rate * s) - 1). The exponent is capped: beyond it never finishes.
(1 / interruptions_per_hour + restart_hours) * (
    floor(work_hours / interval_hours)
    * (exp(least(interruptions_per_hour * (interval_hours + save_hours), 60)) - 1)
    + case
        when work_hours - floor(work_hours / interval_hours) * interval_hours > 1e-9
            then exp(least(
                interruptions_per_hour
                * (work_hours - floor(work_hours / interval_hours) * interval_hours + save_hours),
                60
            )) - 1
        else 0
    end
)
