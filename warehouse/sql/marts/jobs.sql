-- Reference fine-tuning jobs: model, method and how much is trained.
-- grain: job
-- units: tokens trained in all; GB of data; days and hours kept
select * from seeds.jobs
