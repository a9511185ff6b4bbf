-- Work on the GPUs, the calls that launched it, and what the tracer noted about each call. A column
-- NAME_string contains the id of a string.
SELECT
    o.id,
    o.opType_id AS source_category_string,
    o.description_id AS name_string,
    o.start AS start_ns,
    o.end - o.start AS duration_ns,
    o.gpuId AS device,
    o.queueId AS queue,
    l.api_id AS correlation_id,
    coalesce(k.stream, c.stream) AS stream_text,
    CASE typeof(c.size) WHEN 'integer' THEN c.size END AS bytes,
    k.kernelName_id AS launched_string,
    k.gridX AS grid_x, k.gridY AS grid_y, k.gridZ AS grid_z,
    k.workgroupX AS block_x, k.workgroupY AS block_y, k.workgroupZ AS block_z
FROM rocpd_op o
LEFT JOIN rocpd_api_ops l ON l.op_id = o.id
LEFT JOIN rocpd_kernelapi k ON k.api_ptr_id = l.api_id
LEFT JOIN rocpd_copyapi c ON c.api_ptr_id = l.api_id
ORDER BY o.id
