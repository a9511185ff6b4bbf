-- Points in time on the host. Without a message, their name is that of the track.
SELECT
    s.event_id,
    k.name_id AS name_string,
    e.category_id AS source_category_string,
    CASE WHEN e.stack_id > 0 THEN e.stack_id END AS correlation_id,
    s.timestamp AS start_ns,
    s.timestamp - s.timestamp AS duration_ns,
    p.pid AS process,
    t.tid AS thread,
    CASE WHEN json_valid(m.extdata) THEN nullif(json_extract(m.extdata, '$.message'), '') END
        AS message_text
FROM rocpd_sample s
LEFT JOIN rocpd_event e ON e.id = s.event_id
LEFT JOIN rocpd_track k ON k.id = s.track_id
LEFT JOIN rocpd_info_process p ON p.id = k.pid
LEFT JOIN rocpd_info_thread t ON t.id = k.tid
LEFT JOIN rocpd_event m ON m.id = s.event_id AND e.category_id IN (
    SELECT id FROM rocpd_string WHERE string LIKE 'marker%' OR string LIKE 'rocm_marker%'
)
