-- Kernel dispatches. A column NAME_string contains the id of a string.
SELECT
    k.event_id,
    k.kernel_id,
    e.category_id AS source_category_string,
    CASE WHEN e.stack_id > 0 THEN e.stack_id END AS correlation_id,
    k.start AS start_ns,
    k.end - k.start AS duration_ns,
    g.type_index AS device,
    t.tid AS launch_thread,
    k.stream_id AS stream,
    k.queue_id AS queue,
    k.dispatch_id,
    k.group_segment_size AS lds_bytes,
    k.private_segment_size AS scratch_bytes,
    k.grid_size_x AS grid_x, k.grid_size_y AS grid_y, k.grid_size_z AS grid_z,
    k.workgroup_size_x AS block_x, k.workgroup_size_y AS block_y, k.workgroup_size_z AS block_z
FROM rocpd_kernel_dispatch k
LEFT JOIN rocpd_event e ON e.id = k.event_id
LEFT JOIN rocpd_info_agent g ON g.id = k.agent_id AND g.type = 'GPU'
LEFT JOIN rocpd_info_thread t ON t.id = k.tid
ORDER BY k.id
