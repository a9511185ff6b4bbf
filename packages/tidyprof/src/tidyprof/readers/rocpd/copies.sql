-- Copies. The device is the target, or the source if the target isn't a GPU.
SELECT
    c.event_id,
    c.name_id AS name_string,
    e.category_id AS source_category_string,
    CASE WHEN e.stack_id > 0 THEN e.stack_id END AS correlation_id,
    c.start AS start_ns,
    c.end - c.start AS duration_ns,
    coalesce(d.type_index, s.type_index) AS device,
    s.type_index AS source_device,
    d.type_index AS destination_device,
    t.tid AS launch_thread,
    c.stream_id AS stream,
    c.queue_id AS queue,
    c.size AS bytes
FROM rocpd_memory_copy c
LEFT JOIN rocpd_event e ON e.id = c.event_id
LEFT JOIN rocpd_info_agent s ON s.id = c.src_agent_id AND s.type = 'GPU'
LEFT JOIN rocpd_info_agent d ON d.id = c.dst_agent_id AND d.type = 'GPU'
LEFT JOIN rocpd_info_thread t ON t.id = c.tid
ORDER BY c.id
