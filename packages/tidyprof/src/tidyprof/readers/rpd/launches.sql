-- The call that launched each operation, and what the tracer noted about the call. The reader joins
-- this with the operations, because SQLite would first build an index of all rows.
SELECT
    l.op_id,
    l.api_id AS correlation_id,
    coalesce(k.stream, c.stream) AS stream_text,
    CASE typeof(c.size) WHEN 'integer' THEN c.size END AS bytes,
    k.kernelName_id AS launched_string,
    k.gridX AS grid_x, k.gridY AS grid_y, k.gridZ AS grid_z,
    k.workgroupX AS block_x, k.workgroupY AS block_y, k.workgroupZ AS block_z
FROM rocpd_api_ops l
LEFT JOIN rocpd_kernelapi k ON k.api_ptr_id = l.api_id
LEFT JOIN rocpd_copyapi c ON c.api_ptr_id = l.api_id
