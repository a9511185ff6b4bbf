-- Allocations and releases of GPU memory, with names such as ALLOC and FREE
SELECT
    m.event_id,
    m.type AS name,
    e.category_id AS source_category_string,
    CASE WHEN e.stack_id > 0 THEN e.stack_id END AS correlation_id,
    m.start AS start_ns,
    m.end - m.start AS duration_ns,
    p.pid AS process,
    t.tid AS thread,
    g.type_index AS memory_device,
    m.size AS bytes
FROM rocpd_memory_allocate m
LEFT JOIN rocpd_event e ON e.id = m.event_id
LEFT JOIN rocpd_info_process p ON p.id = m.pid
LEFT JOIN rocpd_info_thread t ON t.id = m.tid
LEFT JOIN rocpd_info_agent g ON g.id = m.agent_id AND g.type = 'GPU'
