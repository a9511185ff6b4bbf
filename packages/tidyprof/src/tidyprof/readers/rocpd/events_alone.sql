-- Events that no record refers to, and all events. Since schema 3.0.3, a counter value with a
-- sample_id is a record itself.
SELECT
    (
        SELECT count(*) FROM rocpd_event WHERE id NOT IN (
            SELECT event_id FROM rocpd_kernel_dispatch WHERE event_id IS NOT NULL
            UNION ALL SELECT event_id FROM rocpd_memory_copy WHERE event_id IS NOT NULL
            UNION ALL SELECT event_id FROM rocpd_memory_allocate WHERE event_id IS NOT NULL
            UNION ALL SELECT event_id FROM rocpd_region WHERE event_id IS NOT NULL
            UNION ALL SELECT event_id FROM rocpd_sample WHERE event_id IS NOT NULL
            UNION ALL SELECT event_id FROM rocpd_pmc_event
                WHERE event_id IS NOT NULL AND sample_id IS NOT NULL
        )
    ),
    (SELECT count(*) FROM rocpd_event)
