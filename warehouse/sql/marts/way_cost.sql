-- What one way of holding a machine costs, beside the egress: hours, disks, kept data, loads, NAT.
-- units: USD; USD per hour; GB; USD per GB and month; USD per month; USD per GB
-- kept: function(way, usd_per_hour, own_disk_gb, disk_price, stopped_price, kept_price, least_kept_price, ingress_price, nat_gb_price, nat_hour_price)
-- A disk that comes with the machine is paid with it while it runs; a bucket can have a least price.
way.machine_hours * usd_per_hour
+ way.disk_months
* greatest(0, way.stored_gb - case when way.is_disk_apart then 0 else own_disk_gb end)
* disk_price
+ way.stopped_gb_months * stopped_price
+ greatest(way.kept_gb_months * kept_price, way.kept_months * least_kept_price)
+ way.ingress_gb * ingress_price
+ way.nat_gb * nat_gb_price
+ way.nat_hours * nat_hour_price
