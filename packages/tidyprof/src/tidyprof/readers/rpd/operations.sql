-- Work on the GPUs. A column NAME_string contains the id of a string.
SELECT
    id,
    opType_id AS source_category_string,
    description_id AS name_string,
    start AS start_ns,
    end - start AS duration_ns,
    gpuId AS device,
    queueId AS queue
FROM rocpd_op
ORDER BY id
