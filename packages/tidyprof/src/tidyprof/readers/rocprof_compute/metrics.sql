-- The metrics of each kernel in an analysis database, at the time of its first dispatch
SELECT
    f.start_ns AS time_ns,
    f.gpu_id AS device,
    m.name AS name,
    v.value AS value,
    m.unit AS unit,
    k.kernel_name AS kernel,
    m.metric_id AS metric_id_text,
    v.value_name AS statistic_text
FROM compute_kernel_metric_value v
JOIN compute_metric_definition m ON m.metric_uuid = v.metric_uuid
JOIN compute_kernel k ON k.kernel_uuid = v.kernel_uuid
JOIN (
    SELECT kernel_name, min(start_timestamp) AS start_ns, gpu_id
    FROM compute_dispatch JOIN compute_kernel USING (kernel_uuid)
    WHERE start_timestamp > 0 AND end_timestamp >= start_timestamp
    GROUP BY kernel_name
) f ON f.kernel_name = k.kernel_name
