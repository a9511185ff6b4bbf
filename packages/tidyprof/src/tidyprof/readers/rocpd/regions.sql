-- Calls and ranges on the host. The message of a roctx range is in the extra data of its event.
SELECT
    r.event_id,
    r.name_id AS name_string,
    e.category_id AS source_category_string,
    CASE WHEN e.stack_id > 0 THEN e.stack_id END AS correlation_id,
    r.start AS start_ns,
    r.end - r.start AS duration_ns,
    p.pid AS process,
    t.tid AS thread,
    CASE WHEN json_valid(m.extdata) THEN nullif(json_extract(m.extdata, '$.message'), '') END
        AS message_text
FROM rocpd_region r
LEFT JOIN rocpd_event e ON e.id = r.event_id
LEFT JOIN rocpd_info_process p ON p.id = r.pid
LEFT JOIN rocpd_info_thread t ON t.id = r.tid
LEFT JOIN rocpd_event m ON m.id = r.event_id AND e.category_id IN (
    SELECT id FROM rocpd_string WHERE string LIKE 'marker%' OR string LIKE 'rocm_marker%'
)
ORDER BY r.id
