-- The dispatches of an analysis database
SELECT
    d.dispatch_id,
    d.gpu_id AS device,
    k.kernel_name AS name,
    d.start_timestamp AS start_ns,
    d.end_timestamp - d.start_timestamp AS duration_ns
FROM compute_dispatch d
LEFT JOIN compute_kernel k ON k.kernel_uuid = d.kernel_uuid
