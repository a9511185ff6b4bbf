-- The events of all records. Since schema 3.0.3, a counter value with a sample_id is a record itself.
SELECT event_id FROM rocpd_kernel_dispatch
UNION ALL SELECT event_id FROM rocpd_memory_copy
UNION ALL SELECT event_id FROM rocpd_memory_allocate
UNION ALL SELECT event_id FROM rocpd_region
UNION ALL SELECT event_id FROM rocpd_sample
UNION ALL SELECT event_id FROM rocpd_pmc_event WHERE sample_id IS NOT NULL
