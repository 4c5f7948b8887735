"""The folder of tables that the pipeline writes: `folder.Folder`, in which plain readers find every row once."""
