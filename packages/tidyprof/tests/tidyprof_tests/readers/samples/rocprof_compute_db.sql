-- An analysis database as rocprof-compute 3.5 writes it, without tables that the reader doesn't use
CREATE TABLE compute_workload (
    workload_id INTEGER NOT NULL PRIMARY KEY, name VARCHAR, sub_name VARCHAR, sys_info_extdata JSON,
    roofline_bench_extdata JSON, profiling_config_extdata JSON
);
CREATE TABLE compute_metadata (
    id INTEGER NOT NULL PRIMARY KEY, compute_version VARCHAR, git_version VARCHAR,
    schema_version VARCHAR
);
CREATE TABLE compute_metric_definition (
    metric_uuid INTEGER NOT NULL PRIMARY KEY, workload_id INTEGER NOT NULL, name VARCHAR,
    metric_id VARCHAR, description TEXT, table_name VARCHAR, sub_table_name VARCHAR, unit VARCHAR
);
CREATE TABLE compute_kernel (
    kernel_uuid INTEGER NOT NULL PRIMARY KEY, workload_id INTEGER NOT NULL, kernel_name VARCHAR
);
CREATE TABLE compute_kernel_roofline_data (
    roofline_uuid INTEGER NOT NULL PRIMARY KEY, kernel_uuid INTEGER NOT NULL, total_flops FLOAT,
    l1_cache_data FLOAT, l2_cache_data FLOAT, hbm_cache_data FLOAT
);
CREATE TABLE compute_dispatch (
    dispatch_uuid INTEGER NOT NULL PRIMARY KEY, kernel_uuid INTEGER NOT NULL, dispatch_id INTEGER,
    gpu_id INTEGER, start_timestamp INTEGER, end_timestamp INTEGER
);
CREATE TABLE compute_kernel_metric_value (
    value_uuid INTEGER NOT NULL PRIMARY KEY, metric_uuid INTEGER NOT NULL,
    kernel_uuid INTEGER NOT NULL, value_name VARCHAR, value FLOAT
);
CREATE TABLE compute_workload_metric_value (
    value_uuid INTEGER NOT NULL PRIMARY KEY, metric_uuid INTEGER NOT NULL,
    workload_id INTEGER NOT NULL, value_name VARCHAR, value FLOAT
);
INSERT INTO compute_workload VALUES
    (1, 'pi', '', '{"gpu_model": "MI350", "gpu_arch": "gfx950", "max_sclk": 2400}',
    '{"HBMBw": 4000.5, "L2Bw": 0}', NULL);
INSERT INTO compute_metadata VALUES (1, '3.5.0', 'df2ff30051', '1.3.0');
INSERT INTO compute_kernel VALUES (1, 1, 'gemm(float*, int)'), (2, 1, '__amd_rocclr_copyBuffer');
INSERT INTO compute_dispatch VALUES
    (1, 1, 7, 3, 13386742234691895, 13386742234692895),
    (2, 2, 8, 3, 13386742234693895, 13386742234694395),
    (3, 1, 9, 3, 13386742234694895, 13386742234697895);
INSERT INTO compute_metric_definition VALUES
    (1, 1, 'VALU FLOPs', '2.1.0', '', '', 'System Speed-of-Light', 'Gflop/s'),
    (2, 1, 'Wavefront Occupancy', '2.1.10', '', '', 'System Speed-of-Light', 'Wavefronts');
INSERT INTO compute_kernel_metric_value VALUES
    (1, 1, 1, 'Avg', 12.5), (2, 1, 1, 'Peak', 72089.6), (3, 1, 2, 'Avg', 0.0),
    (4, 2, 1, 'Avg', NULL), (5, 2, 2, 'Avg', 9e999);
INSERT INTO compute_workload_metric_value VALUES
    (1, 1, 1, 'Avg', 125.5), (2, 1, 1, 'Peak', 72089.6), (3, 2, 1, 'Avg', NULL);
INSERT INTO compute_kernel_roofline_data VALUES (1, 1, 8.5, 0.5, 0.25, 2.0), (2, 2, 0, 0, 0, 0);
